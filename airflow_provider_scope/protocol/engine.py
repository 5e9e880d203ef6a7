"""What the micro-batch loop needs of whatever runs the batches.

Every implementation passes ``tests/contract/test_engine.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.recovery import Baseline, TableState


More: TypeAlias = "Callable[[], Sequence[OffsetEntry]]"
"""Gives the batches that follow from those that were run; none at the end, or if one was not run."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine has to know about the pipeline to run its batches."""

    pipeline: str
    """The ``appId`` of all transactions."""
    table: str
    """Canonical URI of the table."""
    checkpoint: str
    """Canonical URI of the checkpoint."""
    first: int = 0
    """The first batch that can be in the table: those below were abandoned before there was one."""
    columns: str | None = None
    """The columns of the files, as they were inferred from an earlier batch; None if they were not."""
    reads_only: bool = False
    """Whether the batches are only read and checked; then the checkpoint is one for this alone."""


class Engine(ABC):
    """Runs logged batches and looks at the table.

    ``run`` is safe at any time, even twice at once. A batch is committed together with
    ``txn(pipeline, seq)``, and only after its predecessor. A batch that is in the table is skipped.
    """

    fences_without_table: ClassVar[bool] = False
    """Whether a batch can be closed to everybody while there is no table."""
    outlives_task: ClassVar[bool] = False
    """Whether what runs a batch goes on after its worker has ended, and the next try adopts it."""
    newest_job: str | None = None
    """The job that was waited for last; None where there is no job to look at."""

    @abstractmethod
    def probe(self, location: str, pipeline: str | None, baseline: Baseline) -> TableState:
        """Look at the table; see ``protocol.probe.probe``."""

    @abstractmethod
    def run(self, work: Work, entries: Sequence[OffsetEntry], more: More | None = None) -> None:
        """Run the batches in order; stop at the first that fails.

        Returning means only that the engine saw no error: the caller probes the table.

        :param more: To be asked when all batches were run, if what runs them can take others. Then it has
            to be asked until it gives none.
        :raises ScopeProviderError: With the cause; batches before the failed one may be in the table.
        """

    def check(self, work: Work, entry: OffsetEntry) -> None:  # noqa: B027 - a default
        """Refuse a batch of which it is known, before it is run, that it fails; nothing is written.

        :raises ScopeProviderError: As ``run`` will.
        """

    @abstractmethod
    def fence(self, work: Work, entry: OffsetEntry) -> None:
        """Commit an empty transaction in place of a batch, so that nobody can commit it any more.

        The caller has looked at the order: any smaller transaction may be the table's newest. Nothing
        is committed if the batch, or a later one, is in the table.

        :raises ScopeProviderError: Nothing was committed, or that is not known.
        """

    def finish(self, checkpoint: str) -> None:  # noqa: B027 - a default
        """End what waits for further batches of a pipeline: the run has none. It would end by itself, later.

        :param checkpoint: Canonical URI.
        """

    def cancel(self) -> None:  # noqa: B027 - a default
        """End a ``run`` that is going on in this process; called from a signal handler."""
