"""The change data feed of a Delta table as a source."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from airflow_provider_scope import validation
from airflow_provider_scope.sources.files.spec import instant_ms, is_name

Deletes = Literal["apply", "ignore", "soft"]


@validation.with_known_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class CdfSource:
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
    full_load: bool = False
    start_version: int | None = None
    end_version: int | None = None
    start_timestamp: datetime | str | None = None
    deletes: Deletes = "apply"
    max_commits_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    metadata_location: str | None = None

    def __post_init__(self) -> None:
        """Validate; values that are templates are let through."""
        validation.text("table", self.table)
        if not validation.is_deferred(self.table) and self.is_named:
            raise validation.bad(
                "table",
                self.table,
                "the table's folder: an absolute path or a URI",
                "give its location (DESCRIBE DETAIL shows it): the log is read before Spark is started",
            )
        validation.text("identifier", self.identifier)
        if self.metadata_location is not None:
            validation.text("metadata_location", self.metadata_location)
        validation.one_of("deduplication", self.deduplication, ("last",))
        validation.one_of("deletes", self.deletes, get_args(Deletes))
        whole = validation.switch("full_load", self.full_load)
        validation.set_field(self, "full_load", self.full_load if whole is None else whole)
        for name, least in (
            ("start_version", 0),
            ("end_version", 0),
            ("max_commits_per_batch", 1),
            ("max_bytes_per_batch", 1),
        ):
            validation.set_field(self, name, validation.number(name, getattr(self, name), at_least=least))
        instant_ms("start_timestamp", self.start_timestamp)
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
    def is_named(self) -> bool:
        """Whether ``table`` is a name in a catalog, which is not taken, and not a folder."""
        return is_name(self.table)
