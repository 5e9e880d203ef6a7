"""What the log of a task shows of an error of ours: one stack, which ends with the words that matter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG

from airflow_provider_scope.exceptions import SourceNotFoundError
from airflow_provider_scope.operators.base import fail
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.stores.local import LocalStorage

if TYPE_CHECKING:
    from pathlib import Path

OURS = re.compile(r'File ".*/airflow_provider_scope/(\w+)/')


def a_dag(name: str, tmp_path: Path, **more: Any) -> DAG:
    with DAG(name, schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(tmp_path / "table"),
            source=FileSource(roots=str(tmp_path / "landing"), patterns=r"\.parquet$", format="parquet"),
            **more,
        )
    return dag


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"full_refresh": True}, "AirflowFailException: EmptyRefreshError: A full refresh of "),
        ({}, "exceptions.SourceNotFoundError: The source folder "),
    ],
)
def test_the_log_ends_with_the_words_of_the_error_and_shows_no_stack_of_ours(
    run_dag, tmp_path, capfd, more, words
):
    if more:
        (tmp_path / "landing").mkdir()

    assert run_dag(a_dag(f"fails_{len(more)}", tmp_path, **more)).state == "failed"

    before, _, shown = capfd.readouterr().out.partition("Task failed with exception")
    assert words.rpartition("Error: ")[2] in before
    assert "Traceback" not in before
    stack, _, said = shown.partition(words)
    assert stack.count("Traceback (most recent call last)") == 1
    assert "direct cause" not in stack
    assert "During handling" not in stack
    assert set(OURS.findall(stack)) == {"operators"}
    assert [line.partition(":")[0] for line in said.splitlines()[1:3]] == ["Kept", "What to do"]


def test_where_an_error_came_from_is_told_at_debug_level():
    told = []

    class Log:
        def error(self, text: str, *arguments: Any) -> None:
            told.append((text % arguments).partition(":")[0])

        def debug(self, text: str, *arguments: Any, exc_info: BaseException) -> None:
            told.append((text % arguments, exc_info.__traceback__ is not None))

    def task() -> None:
        try:
            next(iter(LocalStorage().walk("file:///nowhere/at/all")))
        except SourceNotFoundError as err:
            fail(err, Log())

    with pytest.raises(SourceNotFoundError) as caught:
        task()

    assert told == ["SourceNotFoundError", ("The task fails with SourceNotFoundError", True)]
    assert caught.value.__suppress_context__
