"""What the micro-batch loop needs of whatever the rows come from, and what it is asked to do.

Every implementation passes ``tests/contract/test_source.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from airflow_provider_scope.protocol.commands import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.stores.protocol import Store
    from airflow_provider_scope.values import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one run is asked to do."""

    table: str
    """Canonical URI of the table."""
    max_batches: int | None = None
    refresh: bool = False
    """Load everything again, replacing the table, or the rows that ``where`` names."""
    where: str | None = None
    is_snapshot: bool = False
    """Whether every run replaces the table by what the source holds then."""
    adds_to_rows: bool = False
    """Whether a first run may add to a table that holds rows: none of its files is in there."""
    first_batch: int | None = None
    """Where a run began that waited in between: its report holds the batches of the earlier part, too."""
    address: Address = field(default_factory=Address)
    """Completes the commands in the warnings and the errors of a run."""
    infers_columns: bool = False
    """Whether the columns of the first batch since the table was begun or replaced are those of all."""

    @property
    def replaces_table(self) -> bool:
        """Whether everything that is in the table goes."""
        return self.refresh and self.where is None

    @property
    def loads_files_again(self) -> bool:
        """Whether many runs added what is replaced: the source may not have all of it any more."""
        return self.replaces_table and not self.is_snapshot


class Access(NamedTuple):
    """What the source of a run asks of the clock, and of the connections of its task."""

    now_ms: int
    """When the run began."""
    store: Callable[[str], Store]
    """Opens the store of a canonical URI."""
    database_kind: Callable[[str], str]
    """Gives the kind of the database of a connection."""
    database_rows: Callable[[str, str, int], list[dict[str, Any]] | None]
    """Asks the database of a connection for so many rows of a query; None if it does not answer."""


class Pending(Protocol):
    """What is new in the source, in the order in which it is to be loaded."""

    @property
    def remaining(self) -> int:
        """How much is still to be cut, as the report counts it."""

    def cut(self) -> Slice | None:
        """Cut off the slice of the next batch; None if nothing is left."""


@dataclass
class OneSlice:
    """At most one slice: what follows it is known when its batch is committed."""

    slice: Slice | None
    remaining: ClassVar[int] = 0
    """Nobody knows it yet."""

    def cut(self) -> Slice | None:
        """Return the slice, once."""
        cut, self.slice = self.slice, None
        return cut


class Source(ABC):
    """Where the rows come from, as one run sees it.

    A slice must give the same rows whenever it is read, or an error: a batch that died is run again. What
    is new follows from the log and ``discover`` alone, so that whoever plans after the same entries does
    not plan what they hold. What has a body here holds for most sources.
    """

    kind: ClassVar[str]
    """The kind of its slices."""
    one_at_a_time: ClassVar[bool] = True
    """Whether a slice follows from the rows of the one before, which has to be committed first."""

    @property
    def reads_history(self) -> bool:
        """Whether the run reads the files of all slices since the refresh into its view."""
        return False

    @property
    def says_from_when(self) -> bool:
        """Whether the user said where to begin, so that the rows of others can be in the table."""
        return False

    @property
    def begins_after(self) -> str:
        """What the user sets so that a first run leaves out what is in the table; empty if nothing can."""
        return ""

    @property
    def interval(self) -> str | None:
        """The name of the interval that the run loads; None if it loads all."""
        return None

    @property
    def is_pinned(self) -> bool:
        """Whether it is a Delta table, whose versions can be read again; its log shows what is new."""
        return False

    @abstractmethod
    def begin_report(self, now_ms: int) -> RunReport:
        """Return the report of a run, with what only this source knows of it."""

    def take_over(self, view: LogView, request: Request, new_id: Callable[[], str], now_ms: int) -> bool:
        """Record what another program loaded into the table of a pipeline that has no entry.

        :return: Whether the log has to be read again: there is a record now, or another run logged a batch.
        """
        return False

    def check_not_loaded_before(self, log: CheckpointLog, audit: AuditFiles) -> None:
        """Refuse to begin an interval of which ``mode="incremental"`` has loaded something.

        :param log: The log of ``mode="incremental"`` in the same checkpoint, which need not exist.
        :raises InputError: As said.
        """
        return

    @abstractmethod
    def check(self, entry: OffsetEntry) -> None:
        """Refuse a slice that this source does not have: the checkpoint is untrusted input.

        :raises CheckpointCorruptError: As said.
        """

    @abstractmethod
    def state_after(self, entry: OffsetEntry) -> str | None:
        """Check that what a batch reads is as it was logged, and give the state of the source after it.

        Asked after ``discover``, by a run that loads nothing. The application checks it again.

        :return: None if the source has no state, or only the rows of the batch tell it.
        :raises SourceError: As the application will.
        """

    @abstractmethod
    def discover(self, request: Request, view: LogView, report: RunReport) -> None:
        """Look, once, where the source ends.

        :raises ScopeProviderError: That is not known, or there is nothing where there has to be something.
        """

    @abstractmethod
    def pending(self, view: LogView, report: RunReport, *, refresh: bool) -> Pending:
        """Return what ``discover`` found and the log does not hold yet.

        :param refresh: Everything counts as new.
        """

    def lag_text(self, view: LogView, now_ms: int) -> str | None:
        """Describe what of a pinned source is not loaded; None if all is, or if nothing shows it."""
        return None
