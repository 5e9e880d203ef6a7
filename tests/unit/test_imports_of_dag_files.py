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
    wanted = {*re.findall(r"^from airflow_provider_scope\S* import .*$", text, re.MULTILINE)}
    assert len(wanted) >= 5

    imports, tasks, examples = imported_by("\n".join(sorted(wanted)), TASKS, RUNS)

    assert (imports, tasks) == (set(), set())
    # A task of SCOPE jobs has its SELECT translated, which says whether it can be.
    assert examples <= {"sqlglot"}
