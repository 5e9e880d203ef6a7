"""A Dag file is read every half a minute: what only a run needs is not imported before."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.docs.pages import ROOT

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


def imported_by(text: str) -> set[str]:
    """Give the heavy modules that are there after some lines, and were not after `airflow.sdk`."""
    lines = [
        "import sys",
        "import airflow.sdk",
        "from airflow.sdk import DAG, BaseOperator",
        "before = set(sys.modules)",
        text,
        "print(*sorted(set(sys.modules) - before))",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    new = done.stdout.split()
    assert any(name.startswith("airflow_provider_scope.") for name in new)
    return {heavy for heavy in HEAVY for name in new if f"{name}.".startswith(f"{heavy}.")}


def test_what_a_dag_file_imports_is_light():
    text = "\n".join(example.read_text() for example in EXAMPLES)
    # Operators, sensors, specs; the retry policy is one that the examples have not.
    wanted = {*re.findall(r"^from airflow_provider_scope\S* import .*$", text, re.MULTILINE)}
    assert len(wanted) >= 5

    assert imported_by("\n".join(sorted(wanted))) == set()


def test_a_dag_file_loads_no_client_of_the_stores_that_it_names():
    locations = [
        *("/data/in", "abfss://lake@acme.dfs.core.windows.net/in", "adl://acme.azuredatalakestore.net/in"),
        *("webhdfs://namenode:9870/in", "s3://bucket/in", "gs://bucket/in", "sftp://host/in"),
    ]
    lines = [
        "from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator",
        "from airflow_provider_scope.specs import FileSource",
        f"for root in {locations}:",
        "    source = FileSource(roots=root, format='parquet')",
        "    DeltaIncrementalIngestOperator(task_id='t', delta_location='/data/t', source=source)",
    ]

    assert imported_by("\n".join(lines)) == set()


def test_a_dag_file_loads_sqlglot_alone_and_only_to_check_a_select():
    runs = "; ".join(f"runpy.run_path({str(example)!r})" for example in EXAMPLES)

    # A task of SCOPE jobs has its SELECT translated, which says whether it can be.
    assert imported_by(f"import runpy; {runs}") <= {"sqlglot"}
