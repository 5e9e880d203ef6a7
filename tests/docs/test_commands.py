"""The commands that the pages show are Airflow's, and print what the pages say."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.cli.cli_parser import get_parser
from airflow.sdk import DAG
from deltalake import DeltaTable
from pyarrow import parquet

from airflow_provider_scope.cli.definition import get_scope_cli_commands
from airflow_provider_scope.cli.init.dag_file import dag_text
from airflow_provider_scope.cli.init.tables import Column, DatabaseTable, database_load
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import SparkJobFailedError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from tests.docs.pages import DOCS, PAGES, blocks, code, page_id, rows, section
from tests.support.delta_engine import SOURCE, DeltaEngine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from airflow_provider_scope.protocol.engine import Work
    from airflow_provider_scope.protocol.records import OffsetEntry

PAGE = DOCS / "commands.md"


def subcommands() -> dict[str, Any]:
    """Return the commands by the words after ``airflow scope``."""
    (group,) = get_scope_cli_commands()
    commands = {}
    for command in group.subcommands:
        for part in getattr(command, "subcommands", [None]):
            commands[f"{command.name} {part.name}" if part else command.name] = part or command
    return commands


def shown(text: str) -> list[tuple[str, str]]:
    """Return the commands of the console blocks of a text, each with what it prints."""
    found = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def test_the_table_of_commands_has_their_arguments_and_options():
    commands = {}
    for name, command in subcommands().items():
        flags = [arg.flags[-1] for arg in command.args]
        wanted = " ".join(f"<{flag}>" for flag in flags if not flag.startswith("-"))
        options = {flag for flag in flags if flag.startswith("-")} - {"--verbose"}
        commands[f"airflow scope {name} {wanted}".rstrip()] = options
    table = rows(section(PAGE, "## All commands"))

    assert {code(row[0])[0]: set(code(row[1])) for row in table} == commands


def test_the_options_of_several_commands_are_explained():
    flags = [flag for command in subcommands().values() for arg in command.args for flag in arg.flags]
    # What --yes does is said before the table of commands, and --reload-undecidable below its command.
    shared = {flag for flag in flags if flag.startswith("-") and flags.count(flag) > 1}
    table = rows(section(PAGE, "## Options"))

    assert {flag for row in table for flag in code(row[0])} == shared - {"-y", "--yes", "--verbose"}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_page_names_no_command_that_does_not_exist(page):
    named = set(re.findall(r"airflow scope ([a-z][a-z-]+)", page.read_text()))

    assert named <= {name.split()[0] for name in subcommands()}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_airflow_takes_the_commands_that_a_page_shows(page):
    for command, _ in shown(page.read_text()):
        if command.startswith("airflow "):
            get_parser().parse_args(shlex.split(command)[1:])


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_command_names_a_table_as_the_task_of_the_page_does(page):
    assert not re.search(r"airflow scope [a-z-]+ file://", page.read_text())


def test_the_file_that_init_writes_is_the_one_on_the_page():
    seen = DatabaseTable(
        "sales.orders",
        columns=(
            Column("order_id", "bigint", "whole", is_required=True, is_indexed=True),
            Column("price", "numeric", "number", digits=(6, 4)),
            Column("changed_at", "timestamp with time zone", "time", is_required=True, is_indexed=True),
        ),
        key=("order_id",),
    )
    (block,) = blocks(section(PAGE, "## init"), "python")

    text = dag_text("orders", "/data/delta/orders", None, database_load("shop", seen))

    assert block.text == text.partition('"""\n\n')[2]


# ---- what they print -----------------------------------------------------------------------------------


class NoSpark(DeltaEngine):
    """An engine that cannot run anything."""

    def run(self, work: Work, entries: Sequence[OffsetEntry]) -> None:
        raise SparkJobFailedError("there is no Spark")


class Flights:
    """The pipeline of the pages: ``/data`` there is a temporary folder here."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.raw: dict[str, Any] = dict.fromkeys(ARGUMENTS)
        self.raw.update(
            delta_location=str(data / "delta/flights"),
            source={
                "roots": [str(data / "landing")],
                "patterns": [r"\.parquet$"],
                "format": "parquet",
                "max_files_per_trigger": 2,
            },
            sql=SELECT_ALL,
            write="append",
            full_refresh=False,
        )

    def land(self, day: int, name: str = "flights.parquet") -> Path:
        path = self.data / f"landing/2026-01-{day:02}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({"id": [day], "day": [day]}, schema=SOURCE), path)
        midnight = 1_767_225_600 + day * 86_400
        os.utime(path, (midnight, midnight))
        return path

    def run(self, engine: DeltaEngine) -> None:
        ingest = ingest_from(self.raw)
        assert ingest
        execution, request, _ = assembly.assemble(
            ingest,
            assembly.RunContext(task="d.t", log_file=self.data / "spark.log", report=lambda line: None),
        )
        execution.engine = engine
        execution.run(request)

    def are_commanded(self, monkeypatch: pytest.MonkeyPatch, engine: DeltaEngine) -> None:
        """Let commands find the Dag of the pipeline, and this engine."""
        monkeypatch.setattr(assembly, "spark_engine", lambda *_, **__: engine)
        with DAG("flights", schedule=None) as dag:
            DeltaIncrementalIngestOperator(
                task_id="ingest", **{k: v for k, v in self.raw.items() if v is not None}
            )
        # Airflow looks for a Dag by its database, which takes ten seconds to make.
        monkeypatch.setattr(
            "airflow_provider_scope.cli.tasks.find_dag", lambda _, dag_id: {"flights": dag}[dag_id]
        )


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flights:
    """Return four files in two batches, and a third batch whose file vanished before Spark read it."""
    made = Flights(tmp_path)
    for day in (1, 2, 3, 4):
        made.land(day)
    made.run(DeltaEngine())
    vanishing = made.land(5)
    with pytest.raises(SparkJobFailedError):
        made.run(NoSpark())
    vanishing.unlink()
    made.land(6)
    made.land(6, "_hidden.parquet")
    engine = DeltaEngine()
    engine.report = print
    made.are_commanded(monkeypatch, engine)
    return made


def alike(text: str) -> list[str]:
    """Return the lines of an output without what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
    text = re.sub(r"[\d,]+ bytes", "N bytes", text)
    text = re.sub(r"[\dT:.+-]+Z? \(.* ago\)", "TIME", text)
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_commands_print_what_the_page_shows(flights, capsys):
    for name in ("status", "plan", "rebuild", "abandon", "accept-table"):
        if name == "accept-table":
            DeltaTable(flights.data / "delta/flights").restore(0)
        examples = shown(section(PAGE, f"## {name}"))
        assert examples, name
        for command, output in examples:
            args = get_parser().parse_args(shlex.split(command.replace("/data/", f"{flights.data}/"))[1:])
            capsys.readouterr()

            # What ends with an error shows it below what it prints.
            with suppress(SystemExit):
                args.func(args)

            said = capsys.readouterr()
            shown_error = said.err[said.err.find("SourceFileGoneError") :] if name == "plan" else ""
            printed = (said.out + shown_error).replace(str(flights.data), "/data")
            assert alike(printed) == alike(output), f"{command}\n{printed}"
