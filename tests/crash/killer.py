"""A process that does nothing but fork runs that die.

``deltalake`` refuses to work in a child of a process that has used it, and whoever compares tables has
used it. So the children come from a process of their own: it takes one JSON object a line (folder,
scenario, step, number, when), and answers with the exit status of the child.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.support.faulty_storage import KillAt, When

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]


def serve(scenarios: Mapping[str, Any]) -> None:
    """Fork a run that dies for each order that comes in."""
    pa.array([1])  # imports pandas, which takes each child a second otherwise
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a run prints is no answer
    logging.disable(logging.WARNING)  # a thousand full refreshes each say how to get the old rows back
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            order = json.loads(line)
            _run_and_die(scenarios[order["scenario"]], order)
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _run_and_die(scenario: Any, order: dict[str, str]) -> None:
    gate = KillAt(int(order["number"]), order["when"])  # type: ignore[arg-type]
    try:
        step = scenario.act if order["step"] == "act" else scenario.again
        step(scenario.world(Path(order["folder"])), gate)
    except BaseException:  # noqa: BLE001 - whatever it is, the parent wants the status
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class Killer:
    """The process, as seen by who gives it orders."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.killer"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def kill(self, folder: Path, scenario: str, step: str, number: int, when: When) -> int:
        """Run a step of a scenario in a child that dies there; give the child's exit status."""
        assert self.process.stdin
        assert self.process.stdout
        order = {"folder": str(folder), "scenario": scenario, "step": step, "number": number, "when": when}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@functools.cache
def the_killer() -> Killer:
    """Return the one of this process: to start one takes two seconds. It ends when its input does."""
    return Killer()


if __name__ == "__main__":
    from tests.crash.parts import SCENARIOS

    serve(SCENARIOS)
