"""Runs that find no file, in real Dag runs; nothing is loaded, so none needs Java."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource


@pytest.fixture
def run_over(run_dag, tmp_path):
    def run(**source):
        with DAG("no_files", schedule=None) as dag:
            DeltaIncrementalIngestOperator(
                task_id="ingest",
                delta_location=str(tmp_path / "table"),
                source=FileSource(roots=str(tmp_path / "landing"), format="csv", **source),
            )
        return run_dag(dag).state

    (tmp_path / "landing").mkdir()
    return run


def test_patterns_that_match_none_of_the_files_that_are_there_are_a_warning_with_names(
    run_over, tmp_path, capsys
):
    (tmp_path / "landing" / "orders.tsv").write_text("a\tb\n")

    assert run_over() == "success"

    shown = capsys.readouterr().out
    assert shown.count("[warning  ]") == 1
    assert "none of the 1 files" in shown
    assert "such as orders.tsv, matches the patterns" in shown
    assert not (tmp_path / "table").exists()


def test_an_empty_folder_is_no_warning(run_over, capsys):
    assert run_over() == "success"

    assert "[warning" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "orders.tsv"])
def test_a_run_without_files_fails_if_it_is_asked_to(run_over, tmp_path, name):
    if name:
        (tmp_path / "landing" / name).write_text("a\n")

    assert run_over(fail_on_empty=True) == "failed"
    assert not (tmp_path / "table").exists()
