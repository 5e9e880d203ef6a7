"""Runs that would lose or double rows are refused before Spark starts, and say what goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

if TYPE_CHECKING:
    from pathlib import Path


def refusal(table: Path | str, root: Path | str, **source: Any) -> str:
    """Return the words with which the task fails, whose templates are rendered as in a run."""
    with DAG("refused", schedule=None) as dag:
        task = DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(table),
            source={"roots": "{{ root }}", "patterns": r"\.parquet$", "format": "parquet", **source},
        )
    task.render_template_fields({"root": str(root)}, dag.get_template_env())
    ti = SimpleNamespace(
        dag_id="refused", run_id="r", task_id="ingest", map_index=-1, try_number=1, start_date=None
    )
    with pytest.raises((AirflowFailException, ScopeProviderError)) as caught:
        task.execute({"ti": ti})
    return str(caught.value)


def test_a_root_that_holds_the_table(tmp_path):
    assert "a run would load its own output" in refusal(tmp_path / "table", tmp_path)
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize("name", ["", "orders.tsv"])
def test_a_folder_without_files_if_that_is_asked_for(tmp_path, name):
    (tmp_path / "landing").mkdir()
    if name:
        (tmp_path / "landing" / name).write_text("a\n")

    assert (name or "holds no file") in refusal(tmp_path / "table", tmp_path / "landing", fail_on_empty=True)
    assert not (tmp_path / "table").exists()
