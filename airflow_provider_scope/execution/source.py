"""What the micro-batch loop needs of whatever the rows come from.

Every implementation passes ``tests/contract/test_source.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.core.report import RunReport
    from airflow_provider_scope.core.slices import Slice
    from airflow_provider_scope.execution.request import Request
    from airflow_provider_scope.execution.view import LogView


class Pending(Protocol):
    """What is new in the source, in the order in which it is to be loaded."""

    @property
    def left(self) -> int:
        """How much is still to be cut, as the report counts it."""

    def cut(self) -> Slice | None:
        """Cut off the slice of the next batch; None if nothing is left."""


class Source(Protocol):
    """Where the rows come from, as one run sees it.

    A slice must give the same rows whenever it is read, or an error: a batch that died is run again. What
    is new follows from the log and ``discover`` alone, so that whoever plans after the same entries does
    not plan what they hold.
    """

    @property
    def kind(self) -> str:
        """The kind of its slices."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether a slice follows from the rows of the one before, which has to be committed first."""

    @property
    def reads_history(self) -> bool:
        """Whether all slices since the refresh tell what is new, and not the newest alone."""

    @property
    def says_from_when(self) -> bool:
        """Whether the user said where to begin, so that the rows of others can be in the table."""

    @property
    def interval(self) -> str | None:
        """The name of the interval that the run loads; None if it loads all."""

    def begin_report(self, now_ms: int) -> RunReport:
        """Give the report of a run, with what only this source knows of it."""

    def look_back(self, view: LogView, request: Request, now_ms: int) -> bool:
        """Put into the view of a pipeline without an entry what another program has loaded for it.

        :return: False if another run has logged a batch meanwhile: the log has to be read again.
        """

    def check(self, entry: OffsetEntry) -> None:
        """Refuse a slice that this source does not have: the checkpoint is untrusted input.

        :raises CheckpointCorruptError: As said.
        """

    def discover(self, request: Request, view: LogView, report: RunReport) -> None:
        """Look, once, where the source ends.

        :raises ScopeProviderError: That is not known, or there is nothing where there has to be something.
        """

    def pending(self, view: LogView, report: RunReport, *, refresh: bool) -> Pending:
        """Tell what the log does not hold yet of what ``discover`` found.

        :param refresh: Everything counts as new.
        """
