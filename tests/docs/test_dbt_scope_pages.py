"""The pages for users of dbt-scope have every name, and show what the commands print."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, get_args

import pyarrow as pa
import pytest
from airflow.cli.cli_parser import get_parser
from pyarrow import parquet

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.protocol.seen import Reason
from airflow_provider_scope.specs import dbt_scope
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from airflow_provider_scope.stores.local import LocalStorage
from tests.docs.pages import DOCS, blocks, code, prose, rows, section
from tests.support.dbt_scope import DbtScope
from tests.support.delta_engine import SOURCE, DeltaEngine

if TYPE_CHECKING:
    from pathlib import Path

NAMES = DOCS / "dbt_scope_names.md"
MOVING = DOCS / "moving_from_dbt_scope.md"
MIDNIGHT = 1_767_225_600
"""The first second of 2026."""


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        ("## Model configuration", dbt_scope._CONFIG),
        ("## Profile", dbt_scope._PROFILE),
    ],
)
def test_every_key_that_is_translated_is_on_the_page(heading, known):
    cells = [code(row[0]) for row in rows(section(NAMES, heading))]
    documented = {re.split(r"[=\s]", name)[0] for names in cells for name in names}

    assert known <= documented


def test_the_reasons_that_the_page_names_are_those_of_reports():
    named = {name for name in code(prose(MOVING.read_text())) if "the watermark taken over" in name}

    assert named == {reason for reason in get_args(Reason) if "taken over" in reason}


class Flights:
    """A table below ``/data`` that dbt-scope and this package load in turn."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.theirs = DbtScope(LocalStorage(), f"file://{data}/delta/flights/_checkpoint")

    def land(self, day: int) -> tuple[str, int]:
        path = self.data / f"landing/2026-01-{day:02}/flights.parquet"
        path.parent.mkdir(parents=True)
        parquet.write_table(pa.table({"id": [day], "day": [day]}, schema=SOURCE), path)
        os.utime(path, (MIDNIGHT + day * 86_400,) * 2)
        return str(path), (MIDNIGHT + day * 86_400) * 1_000

    def run(self) -> None:
        ingest = ingest_from(
            {
                **dict.fromkeys(ARGUMENTS),
                "delta_location": str(self.data / "delta/flights"),
                "source": {
                    "roots": [str(self.data / "landing")],
                    "patterns": [r"\.parquet$"],
                    "format": "parquet",
                    "max_files_per_trigger": 2,
                },
                "sql": SELECT_ALL,
                "write": "append",
                "full_refresh": False,
            }
        )
        assert ingest
        context = assembly.RunContext(task="d.t", log_file=self.data / "spark.log", report=lambda line: None)
        execution, request, _ = assembly.assemble(ingest, context)
        execution.engine = DeltaEngine()
        execution.run(request)


def test_the_command_prints_what_the_page_shows(tmp_path, capsys):
    flights = Flights(tmp_path)
    flights.theirs.loaded([flights.land(1)])
    for day in (2, 3, 4):
        flights.land(day)
    flights.run()
    flights.theirs.loaded([flights.land(5)])

    printed = []
    examples = blocks(section(DOCS / "commands.md", "## take-over"), "console")[0].text
    for part in re.split(r"^\$ ", examples, flags=re.MULTILINE)[1:]:
        command = part.partition("\n")[0]
        args = get_parser().parse_args(shlex.split(command.replace("/data/", f"{tmp_path}/"))[1:])
        capsys.readouterr()
        args.func(args)
        printed.append(f"$ {command}\n{capsys.readouterr().out}")

    assert "".join(printed).replace(str(tmp_path), "/data") == examples
