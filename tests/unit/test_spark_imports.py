"""What the Spark application does not import: in a process of its own, without a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from airflow_provider_scope.engines import application

if TYPE_CHECKING:
    from pathlib import Path


def test_a_call_into_java_does_not_import_pandas_and_who_wants_the_helpers_of_tests_gets_the_real_ones():
    code = (
        "import sys\n"
        "from airflow_provider_scope.spark.session import leave_out_numpy\n"
        "leave_out_numpy()\n"
        "from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter\n"
        "print(NumpyScalarConverter().can_convert([1]), NumpyArrayConverter().can_convert([1]))\n"
        "print([name for name in ('numpy', 'pandas', 'pyarrow', 'pyspark.testing') if name in sys.modules])\n"
        "from pyspark.testing.utils import assertDataFrameEqual\n"
        "from pyspark.testing.utils import have_numpy\n"
        "print(assertDataFrameEqual.__name__, have_numpy)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["False False", "[]", "assertDataFrameEqual True"]


def test_what_is_shipped_is_all_that_the_application_imports(tmp_path: Path):
    archive = tmp_path / "application.zip"
    application.write_zip(archive)
    code = (
        "import pkgutil, sys\n"
        "import airflow_provider_scope.spark as spark\n"
        "names = [module.name for module in pkgutil.walk_packages(spark.__path__, spark.__name__ + '.')]\n"
        "[__import__(name) for name in names if not name.endswith('.main')]\n"
        "print(len(names) > 30, {module.__file__.split('.zip')[0] for name, module in sys.modules.items()\n"
        "    if name.startswith('airflow_provider_scope')})"
    )

    # An editable installation is a finder of its own, which comes after the path.
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(archive)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == f"True {{{str(archive.with_suffix(''))!r}}}"
