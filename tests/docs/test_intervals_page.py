"""The page about intervals shows what the commands print."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from typing import Any

import pytest
from airflow.cli.cli_parser import get_parser

from airflow_provider_scope.exceptions import SparkJobFailedError
from tests.docs.pages import DOCS, section
from tests.docs.test_commands import Flights, NoSpark, alike, shown
from tests.support.delta_engine import DeltaEngine

PAGE = DOCS / "intervals.md"


@pytest.fixture
def flights(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Flights:
    """Return two intervals, one of which did not come to its end."""
    made = Flights(tmp_path)
    made.raw["mode"] = "data_interval"
    for day, engine in ((1, DeltaEngine()), (2, NoSpark())):
        made.land(day)
        made.raw["window_start"] = f"2026-01-{day + 1:02}T00:00:00+00:00"
        made.raw["window_end"] = f"2026-01-{day + 2:02}T00:00:00+00:00"
        with pytest.raises(SparkJobFailedError) if day == 2 else nullcontext():
            made.run(engine)
    looking = DeltaEngine()
    looking.stores = ()  # type: ignore[attr-defined] # as Spark's has them
    del made.raw["window_start"], made.raw["window_end"]
    made.are_commanded(monkeypatch, looking)
    return made


def test_the_commands_print_what_the_page_shows(flights, capsys):
    examples = shown(section(PAGE, "## Commands"))

    assert [command.split()[2] for command, _ in examples] == ["status", "plan"]
    for command, output in examples:
        args = get_parser().parse_args(shlex.split(command.replace("/data/", f"{flights.data}/"))[1:])
        capsys.readouterr()
        args.func(args)

        printed = capsys.readouterr().out.replace(str(flights.data), "/data")
        assert alike(printed) == alike(output), f"{command}\n{printed}"
