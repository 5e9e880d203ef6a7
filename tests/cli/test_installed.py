"""The commands as a user types them: the installed ``airflow``, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.world import DeltaWorld


def airflow(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command with a home of its own and without what this process has set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment = {
        **kept,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "COLUMNS": "200",
    }
    command = [str(Path(sys.executable).with_name("airflow")), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_installed_command_prints_what_it_sees_and_ends_with_an_error_without_a_stack(tmp_path):
    world = DeltaWorld(tmp_path / "world")
    world.drop("a.parquet", 60)
    world.run()
    world.recreate()

    done = airflow(tmp_path / "home", "scope", "status", world.table)

    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == f"table       {world.table}"
    assert "\nTableRecreatedError: " in f"\n{done.stderr}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("status",), ("abandon", "/table"), ("abandon", "/table", "first"), ()])
def test_a_command_line_that_is_not_complete_is_refused(words):
    from airflow.cli.cli_parser import get_parser

    with pytest.raises(SystemExit) as caught:
        get_parser().parse_args(["scope", *words])

    assert caught.value.code == 2
