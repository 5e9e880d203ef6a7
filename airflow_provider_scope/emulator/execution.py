"""What runs the script of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Task:
    """The script of one job, to be run."""

    job_id: str
    script: str
    names_job: bool
    """Whether a commit's ``commitInfo`` names the job."""
    is_cancelled: Callable[[], bool]
    """Asked before each commit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a script ended."""

    failure: str = ""
    """Why it failed; empty if it did not."""
    user_error: bool = True
    """Whether the script is to blame, or else the emulator."""


class Executor(Protocol):
    """Runs scripts, several at a time.

    A script may be run again with the same job id, after the emulator was killed in the middle. What it
    committed the first time must not be committed twice.
    """

    workers: int
    """How many scripts may run at the same time."""

    def execute(self, task: Task) -> Outcome:
        """Run a script to its end; a failure is an outcome, not an exception."""

    def close(self) -> None:
        """Free what is held."""
