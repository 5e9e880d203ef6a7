"""What a Dag file, which is read every half a minute, and the Spark application do not import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from airflow_provider_scope.engines import application
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = sorted((ROOT / "dags_examples").glob("*.py"))
HEAVY = {
    *(
        "adlfs",
        "azure",
        "botocore",
        "cryptography",
        "deltalake",
        "fsspec",
        "numpy",
        "pyarrow",
        "pyspark",
        "requests",
    ),
    *("sqlglot", "urllib3", "airflow.providers.apache", "airflow.providers.microsoft"),
}


STORES = [
    *("/data/in", "abfss://lake@acme.dfs.core.windows.net/in", "adl://acme.azuredatalakestore.net/in"),
    *("webhdfs://namenode:9870/in", "s3://bucket/in", "gs://bucket/in", "sftp://host/in"),
]
"""A location on each kind of store."""
TASKS = f"""
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource
for root in {STORES}:
    source = FileSource(roots=root, format='parquet')
    DeltaIncrementalIngestOperator(task_id='t', delta_location='/data/t', source=source)
"""
RUNS = "import runpy\n" + "\n".join(f"runpy.run_path({str(example)!r})" for example in EXAMPLES)


def imported_by(*texts: str) -> list[set[str]]:
    """Return the heavy modules that are there after each of some texts, and were not after `airflow.sdk`."""
    start = (
        "import sys\nimport airflow.sdk\nfrom airflow.sdk import DAG, BaseOperator\nbefore = set(sys.modules)"
    )
    shown = "print(*sorted(set(sys.modules) - before))"
    code = "\n".join([start, *(f"{text}\n{shown}" for text in texts)])
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    new = [line.split() for line in done.stdout.splitlines()[-len(texts) :]]
    assert all(any(name.startswith("airflow_provider_scope.") for name in names) for names in new)
    return [
        {heavy for heavy in HEAVY for name in names if f"{name}.".startswith(f"{heavy}.")} for names in new
    ]


def test_a_dag_file_imports_nothing_heavy_and_sqlglot_only_to_check_a_select():
    text = "\n".join(example.read_text() for example in EXAMPLES)
    # Operators, sensors, specs; the retry policy is one that the examples have not.
    statements = {*re.findall(r"^from airflow_provider_scope\S* import .*$", text, re.MULTILINE)}
    assert len(statements) >= 5

    imports, tasks, examples = imported_by("\n".join(sorted(statements)), TASKS, RUNS)

    assert (imports, tasks) == (set(), set())
    # A task of SCOPE jobs has its SELECT translated, which says whether it can be.
    assert examples <= {"sqlglot"}


# ---- the Spark application, in a process of its own, without a JVM -----------------------------------


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
