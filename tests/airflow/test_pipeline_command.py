"""``airflow scope`` commands as tasks: the command line's own functions, output, errors and refusals."""

from __future__ import annotations

import inspect
import json
import runpy
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.operators.pipeline_command import PipelineCommandOperator
from tests.cli.conftest import dag_file, desk, terminal
from tests.docs.pages import DOCS, blocks, code, rows, section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cli.conftest import Desk

__all__ = ["dag_file", "desk", "terminal"]

EXAMPLE = Path(__file__).parents[2] / "dags_examples" / "example_pipeline_command.py"


class Context(dict[str, Any]):
    """What a task pushes to XCom."""

    def __init__(self) -> None:
        super().__init__(ti=self)

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


def run(command: str | Sequence[str], context: Context | None = None, **arguments: Any) -> dict[str, Any]:
    task = PipelineCommandOperator(task_id="t", command=command, **arguments)
    result: dict[str, Any] = task.execute(context or Context())
    assert json.loads(json.dumps(result)) == result
    return result


@pytest.fixture
def example(run_dag: Any) -> Any:
    dag = runpy.run_path(str(EXAMPLE))["dag"]

    def run_example(command: str, *, yes: bool) -> Any:
        run = run_dag(dag, run_conf={"command": command, "yes": yes})
        (ti,) = run.get_task_instances()
        return run.state, ti.xcom_pull(task_ids="run")

    return run_example


def test_the_example_shows_and_then_does_what_an_error_says(desk: Desk, example: Any) -> None:
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)
    typed = f"airflow scope abandon {desk.world.table} 1"
    before = desk.tree()

    shown_state, shown = example(typed, yes=False)
    assert desk.tree() == before
    # The command line says the same, but for how to do it.
    lines = desk.scope(*typed.split()[2:]).out.splitlines()
    assert lines[-1] == "nothing was written; add --yes to do it"
    masked = [desk.masked(line) for line in shown["output"]]
    assert masked == [*lines[:-1], "nothing was written; set yes=True to do it"]
    state, done = example(typed, yes=True)
    failed, error = example(typed, yes=True)

    assert (shown_state, shown["exit_code"], shown["error"]) == ("success", 0, None)
    assert (state, done["exit_code"], done["is_cut"]) == ("success", 0, False)
    assert done["output"] == ["batch 1 is abandoned; the next run loads those of its files that still exist"]
    assert (failed, error["exit_code"], error["error"]["type"]) == ("failed", 1, "InputError")
    desk.world.show("b.parquet")
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


def test_a_command_with_json_returns_it_and_logs_its_lines(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.loaded("a.parquet")
    table = desk.world.table
    printed = json.loads(desk.scope("status", table, "-o", "json").out)

    logged: list[str] = []
    with monkeypatch.context() as patch:
        # The log of the tests' Airflow has warnings alone, such as that no runner executes this task.
        log = SimpleNamespace(info=lambda form, line: logged.append(desk.masked(form % line)), warning=print)
        patch.setattr(PipelineCommandOperator, "log", log)
        result = run(["status", table])
    exact = run(["status", table, "--output", "json"])

    assert {**result, "table_id": "TABLE-ID", "pipeline": "PIPELINE"} == {
        **printed,
        "table": table,
        "checkpoint": f"{table}/_checkpoint",
        "exit_code": 0,
        "is_cut": False,
    }
    assert exact == result
    assert logged == desk.scope("status", table).out.splitlines()


def test_a_failing_command_fails_the_task_with_its_error_and_leaves_its_json(desk: Desk) -> None:
    desk.loaded("a.parquet", "b.parquet")
    from deltalake import DeltaTable

    DeltaTable(str(desk.world.folder / "table")).restore(0)
    printed = desk.table_command("status")
    context = Context()

    with pytest.raises(AirflowFailException) as caught:
        run(["status", desk.world.table], context)

    assert desk.masked(str(caught.value)) == printed.err.strip()
    left = context["return_value"]
    assert (left["exit_code"], left["error"]["type"], left["logged"]) == (1, "TableRestoredError", 2)


def test_the_plan_of_a_task_needs_no_database_and_a_long_one_is_cut(
    desk: Desk, dag_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag_file()
    for number in range(12):
        desk.world.drop(f"{'long name ' * 15}{number:02}.parquet", 60)

    class NoDatabase:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("a task has no database")

    monkeypatch.setattr("airflow.settings.Session", NoDatabase)
    monkeypatch.setattr("airflow.settings.NonScopedSession", NoDatabase)

    result = run("plan planned ingest")

    assert (result["is_complete"], result["is_cut"]) == (True, True)
    assert 0 < len(result["new"]) < 10
    assert result["new"][0]["batch"] == 0
    assert len(json.dumps(result)) <= 4096


# ---- what is refused, and when -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("abandn /t 1", "'abandn' is not valid: expected one of 'status'"),
        ("list", "'list' is not valid: expected one of"),
        ("spark-server list", "'spark-server' is not valid: expected one of"),
        ("airflow scope abandn {{ params.table }} 1", "'abandn' is not valid"),
        ("abandon /t", "the following arguments are required: seq"),
        ("abandon /t one", "argument seq: invalid int value: 'one'"),
        ("abandon /t 1 --yess --force", "unrecognized arguments: --yess --force"),
        (
            ["abandon", "{{ params.table }}", "{{ params.batch }}", "--force"],
            "unrecognized arguments: --force",
        ),
        (["abandon", "{{ params.table }}"], "the following arguments are required: seq"),
        ("status /t --engine flink", "invalid choice: 'flink'"),
        ("status '/t", "No closing quotation"),
        ("", "expected a command"),
        ([], "expected a command"),
        ("airflow scope", "expected a command"),
        (7, "expected the words of a command"),
    ],
)
def test_a_wrong_command_is_refused_when_the_dag_is_parsed(command: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        PipelineCommandOperator(task_id="t", command=command)

    assert reason in caught.value.what


def test_what_a_template_gives_is_refused_when_the_task_runs_and_nothing_is_written(desk: Desk) -> None:
    desk.loaded("a.parquet")
    before = desk.tree()
    task = PipelineCommandOperator(
        task_id="t", command=["abandon", desk.world.table, "{{ params.batch }}"], yes="{{ params.yes }}"
    )
    task.command[2] = "first"
    task.yes = "True"

    with pytest.raises(AirflowFailException, match="argument seq: invalid int value: 'first'"):
        task.execute(Context())

    task.yes, task.command[2] = "perhaps", "0"
    with pytest.raises(AirflowFailException, match="yes='perhaps' is not valid"):
        task.execute(Context())
    assert desk.tree() == before


def test_a_path_with_a_blank_is_a_word_of_a_list_or_quoted(desk: Desk) -> None:
    table = str(desk.world.folder / "no table")

    for command in (["status", table], f"status '{table}'"):
        with pytest.raises(AirflowFailException, match=r"There is no pipeline in .*/no table/_checkpoint"):
            run(command)


# ---- the page ----------------------------------------------------------------------------------------


def test_the_page_shows_the_example_and_has_the_arguments_with_their_defaults() -> None:
    page = section(DOCS / "commands.md", "## In a task")
    parameters = inspect.signature(inspect.unwrap(PipelineCommandOperator.__init__)).parameters
    (shown,) = blocks(page, "python")
    quoted = EXAMPLE.read_text().split("# [START pipeline_command]\n")[1].split("# [END")[0]

    assert shown.text.endswith(textwrap.dedent(quoted))
    table = {code(row[0])[0]: row[1] for row in rows(page)}
    assert table == {"command": "required", "yes": f"`{parameters['yes'].default}`"}
    assert [*table] == [*PipelineCommandOperator.template_fields]
