"""Runs that would lose or double rows are refused before Spark starts, and say what goes on."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from tests.crash.world import NOW_MS, DeltaWorld

if TYPE_CHECKING:
    from pathlib import Path


def refusal(table: Path | str, root: Path | str, **source: Any) -> str:
    """Return the words with which the task fails, whose templates are rendered as in a run."""
    checkpoint = source.pop("checkpoint", None)
    with DAG("refused", schedule=None) as dag:
        task = DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(table),
            source={"roots": "{{ root }}", "patterns": r"\.parquet$", "format": "parquet", **source},
            checkpoint=checkpoint,
        )
    task.render_template_fields({"root": str(root)}, dag.get_template_env())
    ti = SimpleNamespace(
        dag_id="refused", run_id="r", task_id="ingest", map_index=-1, try_number=1, start_date=None
    )
    with pytest.raises((AirflowFailException, ScopeProviderError)) as caught:
        task.execute({"ti": ti})
    return str(caught.value)


def landed(folder: Path) -> Path:
    folder.mkdir()
    pq.write_table(pa.table({"id": [1], "day": [1]}), folder / "a.parquet")
    os.utime(folder / "a.parquet", (NOW_MS // 1000, NOW_MS // 1000))
    return folder


def test_a_root_that_holds_the_table(tmp_path):
    landed(tmp_path / "landing")

    said = refusal(tmp_path / "table", tmp_path)

    assert "a run would load its own output" in said
    assert not (tmp_path / "table").exists()


def test_a_checkpoint_that_vacuum_deletes(tmp_path):
    landing = landed(tmp_path / "landing")
    (tmp_path / "link").symlink_to(tmp_path / "table")

    said = refusal(tmp_path / "table", landing, checkpoint={"location": f"{tmp_path}/link/checkpoint"})

    assert "in a folder that VACUUM cleans" in said
    assert not (tmp_path / "table").exists()


def test_a_root_under_another_name(tmp_path):
    world = DeltaWorld(tmp_path)
    world.drop("a.parquet", 60)
    world.run()
    (tmp_path / "mount").symlink_to(tmp_path / "landing")

    said = refusal(tmp_path / "table", tmp_path / "mount")

    assert "was loaded before under another name" in said
    assert sum(world.rows().values()) == 2


@pytest.mark.parametrize("name", ["", "orders.tsv"])
def test_a_folder_without_files_if_that_is_asked_for(tmp_path, name):
    (tmp_path / "landing").mkdir()
    if name:
        (tmp_path / "landing" / name).write_text("a\n")

    assert (name or "holds no file") in refusal(tmp_path / "table", tmp_path / "landing", fail_on_empty=True)
    assert not (tmp_path / "table").exists()
