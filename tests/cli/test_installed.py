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


def test_help_lists_the_commands(tmp_path):
    done = airflow(tmp_path, "scope", "--help")

    assert done.returncode == 0, done.stderr
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("    ")]
    assert [name for name in listed if name in COMMANDS] == COMMANDS


COMMANDS = ["abandon", "accept-table", "cancel-jobs", "plan", "rebuild", "settle", "status"]


def test_status_works_on_a_pipeline_and_leaves_it_as_it_is(tmp_path):
    world = DeltaWorld(tmp_path / "world")
    world.drop("a.parquet", 60)
    world.run()

    done = airflow(tmp_path / "home", "scope", "status", world.table)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"table       {world.table}"
    assert lines[-2] == "what next   the table and the log fit together; the next run looks for new files"


def test_an_error_ends_with_exit_code_1_on_standard_error_without_a_stack(tmp_path):
    done = airflow(tmp_path / "home", "scope", "status", f"file://{tmp_path}/nothing")

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-3] == (
        f"InputError: There is no pipeline in file://{tmp_path}/nothing/_checkpoint: no batch has been "
        "logged there."
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("status",), ("abandon", "/table"), ("abandon", "/table", "first"), ()])
def test_a_command_line_that_is_not_complete_is_refused(words):
    from airflow.cli.cli_parser import get_parser

    with pytest.raises(SystemExit) as caught:
        get_parser().parse_args(["scope", *words])

    assert caught.value.code == 2
