"""The change data feed of a Delta table as a source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from airflow_provider_scope import validation
from airflow_provider_scope.sources.spec import SourceSpec, is_name
from airflow_provider_scope.validation import Count, Flag, Instant, Whole

if TYPE_CHECKING:
    from collections.abc import Callable

Deletes = Literal["apply", "ignore", "soft"]


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class CdfSource(SourceSpec):
    """The changes of a Delta table, by version, from its change data feed.

    The first load begins at the latest version that created or emptied the table or enabled its feed, with
    the rows of that version. Each later load begins after the last version that was loaded.

    :param table: The table's folder: an absolute path or a URI.
    :param identifier: The name of this load: the log belongs to it, and refuses another one.
    :param deduplication: "last": if a key changed several times, the last change counts. The key is that of
        ``Merge`` or ``Scd2``. ``write="append"`` keeps every change.
    :param full_load: Begin with the current rows of the table, and continue with the changes after that.
    :param start_version: The version at which the first load begins, in place of the one above.
    :param end_version: The last version that is loaded; None: there is no end.
    :param start_timestamp: The first load begins at the first version that was committed then or later: a
        time with its zone, as a datetime or as ISO text.
    :param deletes: What ``Merge`` does with rows that were deleted: "apply" deletes them, "ignore" leaves
        them, "soft" keeps them with ``_deleted`` true. ``Scd2`` takes the first two: a version is retired, or
        not.
    :param max_commits_per_batch: Versions of the source in one batch, at the most; None is all.
    :param max_bytes_per_batch: Bytes of its changes, according to the source's log. A version stays whole.
    :param metadata_location: The folder of a small Delta table that shows the batches to people, created and
        written by the worker: an absolute path or a URI. None: no such table.
    :raises InputError: A value is not valid.
    """

    table: str
    identifier: str = "default"
    deduplication: Literal["last"] = "last"
    full_load: Flag = False
    start_version: Whole | None = None
    end_version: Whole | None = None
    start_timestamp: Instant | None = None
    deletes: Deletes = "apply"
    max_commits_per_batch: Count | None = None
    max_bytes_per_batch: Count | None = None
    metadata_location: str | None = None

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        if not validation.is_deferred(self.table) and is_name(self.table):
            raise validation.bad(
                "table",
                self.table,
                "the table's folder: an absolute path or a URI",
                "give its location (DESCRIBE DETAIL shows it): the log is read before Spark is started",
            )
        self._check_start()

    def _check_start(self) -> None:
        """Refuse two places to begin at, and an end before the beginning."""
        starts = (self.start_version, self.start_timestamp)
        if None not in starts and not any(map(validation.is_deferred, starts)):
            raise validation.bad(
                "start_timestamp", self.start_timestamp, "None with start_version", "set one of the two"
            )
        for name in ("start_version", "start_timestamp"):
            value = getattr(self, name)
            if value is not None and self.full_load is True:
                do = "leave it out: the changes after the snapshot follow"
                raise validation.bad(name, value, "None with full_load=True", do)
        versions = (self.start_version, self.end_version)
        if all(isinstance(version, int) for version in versions) and versions[0] > versions[1]:  # type: ignore[operator]
            raise validation.bad("end_version", self.end_version, "start_version, or a later version")

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.table,)

    @property
    def table_folder(self) -> str:
        return self.table

    @property
    def metadata_table(self) -> str | None:
        return self.metadata_location

    def at(self, root: Callable[[str], str], table: Callable[[str], str]) -> Self:  # noqa: ARG002 - of others
        shown_at = self.metadata_location and table(self.metadata_location)
        return replace(self, table=table(self.table), metadata_location=shown_at)
