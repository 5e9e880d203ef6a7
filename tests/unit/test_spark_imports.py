"""What the Spark application does not import: in a process of its own, without a JVM."""

from __future__ import annotations

import subprocess
import sys


def told(code: str) -> str:
    """Run code behind the start of the application; give what it prints."""
    start = (
        "import sys\nfrom airflow_provider_scope.spark.session import leave_out_numpy\nleave_out_numpy()\n"
    )
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_call_into_java_does_not_import_pandas():
    code = (
        "from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter\n"
        "print(NumpyScalarConverter().can_convert([1]), NumpyArrayConverter().can_convert([1]))\n"
        "print([name for name in ('numpy', 'pandas', 'pyarrow', 'pyspark.testing') if name in sys.modules])"
    )

    assert told(code) == "False False\n[]"


def test_whoever_wants_more_of_the_helpers_of_tests_gets_the_real_ones():
    code = (
        "from pyspark.testing.utils import assertDataFrameEqual\n"
        "from pyspark.testing.utils import have_numpy\n"
        "print(assertDataFrameEqual.__name__, have_numpy)"
    )

    assert told(code) == "assertDataFrameEqual True"
