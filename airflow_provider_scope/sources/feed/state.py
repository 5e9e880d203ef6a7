"""The state of a change data feed between two loads, and the versions that the next one reads."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_scope.delta.commit import is_restore
from airflow_provider_scope.delta.schema import Array, Kind, Map, Struct, narrowed, of_delta
from airflow_provider_scope.exceptions import ChangeFeedError, CheckpointCorruptError
from airflow_provider_scope.values import counted, duration_text, iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_provider_scope.delta.commit import DeltaCommit
    from airflow_provider_scope.values import VersionSlice


KEPT = "all committed batches and all records; nothing else was written"
START_OVER = (
    "run the task once with full_refresh=True, and with full_load=True in its source, to load everything "
    "again"
)
TYPE, VERSION, TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns that the feed adds to those of the table."""
DELETED = "_deleted"
"""The column that says with ``deletes="soft"`` whether the source has the row no more."""
_BEGINS = ("CREATE", "REPLACE TABLE", "TRUNCATE")
"""Operations after which a table has only the rows of that version."""
_ON = "delta.enablechangedatafeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeState:
    """The state after a batch, which is committed with the batch's rows."""

    identifier: str
    source: str
    """The id of the Delta table that was read."""
    version: int
    """Its last version whose changes are in the rows."""
    first: int
    """The first version that was read, or that of the snapshot."""
    at_ms: int | None = None
    """When ``version`` was committed; None is unknown."""

    def encode(self) -> str:
        """Write it as JSON, without fields that have no value."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(fields, ensure_ascii=False, sort_keys=True)


def decode(text: str | None, where: str) -> ChangeState | None:
    """Read a state; None if there is none.

    :param where: What errors name as its place.
    :raises CheckpointCorruptError: It is no state of a change data feed.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
        return ChangeState(
            identifier=str(value["identifier"]),
            source=str(value["source"]),
            version=int(value["version"]),
            first=int(value["first"]),
            at_ms=None if value.get("at_ms") is None else int(value["at_ms"]),
        )
    except (TypeError, ValueError, KeyError) as err:
        raise CheckpointCorruptError(
            f"The state of the change data feed in {where} cannot be read: {err}.",
            kept=KEPT,
            do=f"restore the record from a copy; or {START_OVER}",
        ) from err


def state_after(batch: VersionSlice) -> str:
    """Return the state after a batch, as text."""
    return state_of(batch).encode()


def state_of(batch: VersionSlice) -> ChangeState:
    """Return the state after a batch."""
    before = decode(batch.before, "the entry")
    return ChangeState(
        identifier=batch.identifier,
        source=batch.source,
        version=batch.last,
        first=before.first if before else batch.first,
        at_ms=batch.last_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What the log says of a table, from one of its versions on."""

    table: str
    """The table's id."""
    has_feed: bool
    is_mapped: bool
    """Whether columns have names of their own in the files: then older versions keep their columns."""
    schema: Struct
    partitions: tuple[str, ...] = ()
    """The columns that partition it."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """How long the table keeps its log and its files, as far as it says so; see ``lag_warning``."""

    @classmethod
    def of(cls, action: dict[str, Any]) -> Metadata:
        """Read a ``metaData`` action.

        :raises ValueError: It is none; also ``KeyError``, ``TypeError``, ``AttributeError``.
        """
        settings = {str(k).lower(): str(v) for k, v in (action.get("configuration") or {}).items()}
        return cls(
            table=str(action["id"]),
            has_feed=settings.get(_ON, "").lower() == "true",
            is_mapped=settings.get("delta.columnmapping.mode", "none").lower() != "none",
            schema=of_delta(json.loads(action["schemaString"])),
            partitions=tuple(action.get("partitionColumns") or ()),
            kept={name: settings[name.lower()] for name in DEFAULTS if name.lower() in settings},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCommit:
    """One version of the source, as its commit in the log tells it."""

    version: int
    operation: str = ""
    time_ms: int | None = None
    size_bytes: int = 0
    """Bytes of the files with its changes."""
    metadata: Metadata | None = None
    """The table's from this version on, if the commit changes it."""
    is_partial: bool = False
    """Whether it replaced only the partitions that have new rows, whatever its operation says."""

    @classmethod
    def of(cls, commit: DeltaCommit) -> SourceCommit:
        """Read a commit.

        :raises ValueError: Delta does not write it so; also ``KeyError``, ``TypeError``, ``AttributeError``.
        """
        moved = [*commit.of("add"), *commit.of("remove")]
        size = sum(int(file.get("size") or 0) for file in moved if file.get("dataChange"))
        time_ms = commit.info.get("inCommitTimestamp", commit.info.get("timestamp"))
        # A `saveAsTable` in the dynamic mode; a statement replaces the table even in a session of that mode.
        parameters = commit.info.get("operationParameters") or {}
        is_dynamic, is_v1 = (
            str(parameters.get(name)).lower() == "true"
            for name in ("isDynamicPartitionOverwrite", "isV1SaveAsTableOverwrite")
        )
        return cls(
            version=commit.version,
            operation=commit.operation,
            time_ms=None if time_ms is None else int(time_ms),
            size_bytes=sum(int(file.get("size") or 0) for file in commit.of("cdc")) or size,
            metadata=None if commit.metadata is None else Metadata.of(commit.metadata),
            is_partial=is_dynamic and (is_v1 or commit.metadata is None),
        )

    @property
    def begins(self) -> bool:
        """Whether the table then has no rows but those of this version."""
        return self.version == 0 or (self.operation.upper().startswith(_BEGINS) and not self.is_partial)


class FeedStart(NamedTuple):
    """Where a first load may begin; None if the versions that are there do not tell it."""

    first: int | None
    """The latest version that made, emptied or enabled the table: its rows are all in the feed."""
    enabled: int | None
    """The version that enabled the feed as it is now."""


def feed_start(
    commits: Sequence[SourceCommit], newest: Metadata, before: Metadata | None = None
) -> FeedStart:
    """Find where a first load may begin. Setting the property again, where it is set, changes nothing.

    :param commits: The newest versions, without a gap; all of them, or as many as the log still has.
    :param newest: The metadata of the last of them.
    :param before: The metadata before the first of them that changes it; None if it is not known.
    """
    has_feed: bool | None = before.has_feed if before else None
    if not any(commit.metadata for commit in commits):
        has_feed = newest.has_feed
    if commits and commits[0].version == 0:
        has_feed = False
    first = enabled = None
    for commit in commits:
        had_feed = has_feed
        has_feed = commit.metadata.has_feed if commit.metadata else has_feed
        if has_feed and had_feed is False:
            first = enabled = commit.version
        elif has_feed and commit.begins:
            first = commit.version
        elif has_feed is False:
            first = enabled = None
    return FeedStart(first, enabled)


def version_at(commits: Sequence[SourceCommit], at_ms: int) -> int | None:
    """Return the first version that was committed at a time or later; None if all are earlier."""
    return next((c.version for c in commits if c.time_ms is not None and c.time_ms >= at_ms), None)


def check_range(
    table: str,
    commits: Sequence[SourceCommit],
    source: str,
    before: Metadata | None = None,
    *,
    is_first: bool = False,
) -> None:
    """Refuse versions of which the feed does not tell all changes.

    :param table: The table's name, for people.
    :param source: The id that it has.
    :param before: The metadata before them; None if none of them changes it, or it is not known.
    :param is_first: Whether nothing is loaded yet.
    :raises ChangeFeedError: A version is a RESTORE, is of another table, or has no feed.
    """
    for commit in commits:
        if is_restore(commit.operation) and is_first:
            raise ChangeFeedError(
                f"Version {commit.version} of {table} is a RESTORE, and the first load would begin before "
                "it: the feed does not show what the RESTORE changed.",
                kept=KEPT,
                do="set full_load=True, which loads the rows as they are now",
            )
        if is_restore(commit.operation):
            raise ChangeFeedError(
                f"Version {commit.version} of {table} is a RESTORE: rows that were loaded may no longer be "
                "in the source.",
                kept=KEPT,
                do=START_OVER,
            )
        if commit.metadata and commit.metadata.table != source:
            raise recreated(table, commit.metadata.table, source)
        before = commit.metadata or before
        if before and not before.has_feed:
            raise ChangeFeedError(
                f"The change data feed of {table} was off from version {commit.version} on: changes made "
                "while it was off are not in it.",
                kept=KEPT,
                do="turn the feed on if it is off (ALTER TABLE … SET TBLPROPERTIES "
                f"(delta.enableChangeDataFeed = true)); then {START_OVER}",
            )


def recreated(table: str, present: str | None, source: str, of: str = "") -> ChangeFeedError:
    """Return the error for another table under the same name.

    :param of: A first sentence, which says what belongs to the table that was there before.
    """
    return ChangeFeedError(
        f"{of}The table {table} is not the one that was read before: its id is {present}, and was {source}.",
        kept=KEPT,
        do=f"bring back the table that was read before; or {START_OVER}",
    )


def missing(table: str, version: int) -> ChangeFeedError:
    """Return the error for a version of the range that the log has no more: Delta would leave it out."""
    return ChangeFeedError(
        f"The log of {table} no longer has version {version}, whose changes are still to be read: it was "
        "cleaned up (delta.logRetentionDuration), or its file was deleted.",
        kept=KEPT,
        do=f"restore the file {version:020}.json; or {START_OVER}",
    )


def check_history(table: str, state: ChangeState, commit: SourceCommit | None) -> None:
    """Refuse a table in which a version that was read or planned is another one now, as in a copy put back.

    :param commit: Its version of the state's number; None if the log no longer has it.
    :raises ChangeFeedError: The version was committed at another time than before.
    """
    now = commit.time_ms if commit else None
    if now is None or state.at_ms is None or now == state.at_ms:
        return
    raise ChangeFeedError(
        f"Version {state.version} of {table} is of {iso_time(now)}, and was of {iso_time(state.at_ms)} when "
        "it was read before: the source was set back to an earlier version, and changed since.",
        kept=KEPT,
        do=f"bring back the table that was read before; or {START_OVER}",
    )


def earlier_rows(table: str, first: int, *, replaces: bool) -> str:
    """Return the warning that a load takes no rows from before the feed; refuse a refresh without them.

    :param first: The version that enabled the feed.
    :param replaces: Whether the rows that are loaded would be replaced.
    :raises ChangeFeedError: The refresh would replace the table without these rows.
    """
    text = f"{table} had rows before version {first}, which enabled its change data feed"
    if replaces:
        raise ChangeFeedError(
            f"{text}: a full refresh from the feed would replace the table without them.",
            kept=KEPT,
            do=f"set full_load=True in the source, which loads all rows; or start_version={first}, to load "
            "only what changed since",
        )
    return f"{text}. They are not loaded. To load them, {START_OVER}"


# ---- How long a source keeps the changes that are not loaded ----
# Delta forgets changes in two ways. A commit file of the log may be deleted when it is older than
# ``delta.logRetentionDuration``, and VACUUM deletes files of changes that are older than
# ``delta.deletedFileRetentionDuration``. Either makes a load impossible. People are warned when the oldest
# commit that is not loaded has spent half of the shorter time: a load that runs regularly and still comes so
# far fails soon, and half of the time is left to do something about it.

LOG, FILES = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
DEFAULTS = {LOG: "interval 30 days", FILES: "interval 7 days"}
"""Delta's own, for a table that does not set the property."""
WARNED_FROM = 2
"""A warning comes when an age is beyond the time divided by this."""
_GOES = {LOG: "the source's log may lose the commit", FILES: "VACUUM may delete the files of its changes"}
"""What happens to a commit of that age."""
_UNIT_MS = {
    "week": 7 * 86_400_000.0,
    "day": 86_400_000.0,
    "hour": 3_600_000.0,
    "minute": 60_000.0,
    "second": 1_000.0,
    "millisecond": 1.0,
    "microsecond": 0.001,
}
_MOST_MS = 2**31 * 86_400_000
"""More days are no interval."""
_NUMBER = r"[0-9]+|(?:[0-9]+\.[0-9]{0,9}|\.[0-9]{1,9})(?=\s+second)"
_PART = re.compile(rf"\s*([+-]?)\s*({_NUMBER})\s+({'|'.join(_UNIT_MS)})s?(?=\s|$)")


def interval_ms(text: str) -> int | None:
    """Read an interval as Delta spells it, such as ``interval 1 week 12 hours``; "interval" may be missing.

    :return: Milliseconds; None if it is none that Delta takes, such as one of months, or below 0.
    """
    amounts = text.strip().lower().removeprefix("interval ").strip()
    total, at = 0.0, 0
    while at < len(amounts):
        part = _PART.match(amounts, at)
        if part is None:
            return None
        total += float(f"{part[1]}{part[2]}") * _UNIT_MS[part[3]]
        at = part.end()
    return int(total) if amounts and 0 <= total < _MOST_MS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Versions of a source that are not loaded."""

    commits: int
    size_bytes: int
    """Bytes of the files with their changes."""
    version: int
    """The oldest one."""
    oldest_ms: int | None
    """When it was committed, or a later one if it does not say; None if none of them does."""

    def text(self, table: str) -> str:
        """Name them: ``12 commits of <table>, 3,456 bytes, the oldest of <time>``."""
        since = "" if self.oldest_ms is None else f", the oldest of {iso_time(self.oldest_ms)[:19]}Z"
        return f"{counted(self.commits, 'commit')} of {table}, {self.size_bytes:,} bytes{since}"


def lag_of(commits: Sequence[SourceCommit]) -> Lag | None:
    """Return the lag of a table to which some versions, oldest first, are new; None if there are none."""
    if not commits:
        return None
    return Lag(
        commits=len(commits),
        size_bytes=sum(commit.size_bytes for commit in commits),
        version=commits[0].version,
        oldest_ms=next((commit.time_ms for commit in commits if commit.time_ms is not None), None),
    )


def lag_warning(
    table: str, lag: Lag | None, kept: Mapping[str, str], now_ms: int, *, is_read: bool = False
) -> str:
    """Warn of versions that the source keeps not much longer, or perhaps no more; empty if there is no need.

    :param table: The source, for people.
    :param kept: The properties ``LOG`` and ``FILES`` as the source has them; those that it lacks have
        Delta's default.
    :param now_ms: The time, milliseconds since the epoch.
    :param is_read: Whether a run is about to load them.
    """
    if lag is None:
        return ""
    texts = {name: kept.get(name, default) for name, default in DEFAULTS.items()}
    durations = {name: interval_ms(text) for name, text in texts.items()}
    warnings = [
        (
            f"{name} of {table} is {texts[name]!r}, which is not an interval: it is not known how long "
            "changes are kept"
        )
        for name, duration in durations.items()
        if duration is None
    ]
    horizons = [(duration, name) for name, duration in durations.items() if duration is not None]
    if horizons and lag.oldest_ms is not None:
        # Of two that are equal, the files': VACUUM comes at any time, and the log is cleaned by whole days.
        horizon, name = min(horizons, key=lambda horizon: (horizon[0], horizon[1] == LOG))
        age = max(0, now_ms - lag.oldest_ms)
        subject = f"version {lag.version} of {table} is {duration_text(age)} old and "
        subject += "loaded only now" if is_read else "not loaded"
        warnings.append(_near(subject, age, horizon, name))
    return "; ".join(filter(None, warnings))


def _near(subject: str, age_ms: int, horizon_ms: int, name: str) -> str:
    """Warn of an age that is near or beyond the time that changes are kept; empty if it is not."""
    if age_ms * WARNED_FROM <= horizon_ms:
        return ""
    limit = duration_text(horizon_ms)
    lost = "changes that are not loaded by then can only be loaded by starting over"
    do = "What to do: run the load more often, or set a longer time on the source table"
    if age_ms > horizon_ms:
        return f"{subject}, which is beyond {name} ({limit}): {_GOES[name]} at any time, and {lost}. {do}"
    return f"{subject}. At {limit} ({name}) {_GOES[name]}, and {lost}. {do}"


# ---- the columns that a feed gives ----


def cut(
    table: str,
    commits: Sequence[SourceCommit],
    before: Metadata | None,
    *,
    max_commits: int | None,
    max_bytes: int | None,
    is_first: bool = False,
) -> int:
    """Return how many of some versions make a batch: at least one.

    :param commits: All that are new.
    :param before: The metadata before them; None if it is not known.
    :param is_first: Whether nothing is loaded yet.
    :raises ChangeFeedError: A version changes columns so that those before it cannot be read any more.
    """
    ends = [_schema_end(table, commits, before, is_first=is_first)]
    if max_commits is not None:
        ends.append(max_commits)
    if max_bytes is not None:
        total = 0
        for count, commit in enumerate(commits):
            total += commit.size_bytes
            if total > max_bytes:
                ends.append(max(1, count))
                break
    return min(ends)


def _schema_end(
    table: str, commits: Sequence[SourceCommit], before: Metadata | None, *, is_first: bool
) -> int:
    """Return how many versions can be read with one schema.

    Spark reads a feed with the schema of the last version of the range if columns are mapped, else with the
    newest schema of all. It reads nothing across the version that removed the mapping.
    """
    first_end = len(commits)
    previous = before
    for count, commit in enumerate(commits):
        now = commit.metadata
        if now is None:
            continue
        if previous is not None:
            difference = narrowed(previous.schema, now.schema)
            # A range that begins with wider types is read with these.
            is_widened = difference and not narrowed(previous.schema, now.schema, takes_wider=True)
            if difference and not now.is_mapped and (count or not is_widened):
                raise _not_read_across(
                    table, commit.version, difference, is_first=is_first, is_widened=bool(is_widened)
                )
            is_unmapped = previous.is_mapped and not now.is_mapped
            if count and (difference or is_unmapped):
                first_end = min(first_end, count)
        previous = now
    return first_end


def check_names(table: str, before: Metadata | None, commit: SourceCommit) -> None:
    """Refuse a version that drops a column or gives it another name: rows that are loaded still have it.

    :param before: The metadata before it; None if it is not known.
    :raises ChangeFeedError: A column is dropped or renamed.
    """
    if before is None or commit.metadata is None or not commit.metadata.is_mapped:
        return  # to remove the mapping changes no name
    now = dict(_names(commit.metadata.schema))
    for number, old in _names(before.schema):
        new = now.get(number)
        if new is None:
            raise ChangeFeedError(
                f"Version {commit.version} of {table} drops the column {old!r}: rows that are already "
                "loaded would keep their values in it.",
                kept=KEPT,
                do=f"name the columns to load in `sql`; or {START_OVER}",
            )
        if new.lower() != old.lower():
            raise ChangeFeedError(
                f"Version {commit.version} of {table} renames the column {old!r} to {new!r}: rows that are "
                "already loaded would keep their values in the old column, and have NULL in the new one.",
                kept=KEPT,
                do=f"keep the old name, with a `sql` that names all columns; or {START_OVER}",
            )


def check_reused(table: str, before: Metadata | None, commits: Sequence[SourceCommit]) -> None:
    """Refuse a source in which a name stands for another column than it did, whatever the user selects.

    :param before: The metadata before what is loaded now; None if it is not known.
    :param commits: All versions after that: the last ones may have no mapping any more, which would tell.
    :raises ChangeFeedError: A name stands for another column now.
    """
    old = () if before is None else tuple(_names(before.schema))
    for metadata in filter(None, (commit.metadata for commit in commits if old)):
        now = {name.lower(): number for number, name in _names(metadata.schema)}
        for number, name in old:
            if now.get(name.lower(), number) != number:
                raise ChangeFeedError(
                    f"The name {name!r} now stands for another column of {table} than when rows were "
                    "loaded: rows that do not change would keep the values of the old column.",
                    kept=KEPT,
                    do=START_OVER,
                )


def other_columns(
    table: str, commits: Sequence[SourceCommit], before: Metadata | None
) -> ChangeFeedError | None:
    """Return the error for the first column that some versions drop, rename or replace by another one."""
    changes = [commit for commit in commits if commit.metadata]
    try:
        for number, commit in enumerate(changes):
            check_reused(table, before, changes[number:])
            check_names(table, before, commit)
            before = commit.metadata
    except ChangeFeedError as err:
        return err
    return None


def _names(kind: Kind, path: str = "") -> Iterator[tuple[int, str]]:
    """List the number and the name of each field of a type in a table whose columns are mapped."""
    match kind:
        case Struct():
            for field in kind.fields:
                if field.number:
                    yield field.number, f"{path}{field.name}"
                yield from _names(field.kind, f"{path}{field.name}.")
        case Array():
            yield from _names(kind.element, path)
        case Map():
            yield from _names(kind.key, path)
            yield from _names(kind.value, path)


def _not_read_across(
    table: str, version: int, difference: str, *, is_first: bool, is_widened: bool
) -> ChangeFeedError:
    advice = START_OVER
    if is_first:
        advice = "set full_load=True, which loads the rows as they are"
        advice += f"; or start_version={version}" if is_widened else ""
    return ChangeFeedError(
        f"Version {version} of {table} {difference}: the feed cannot be read across this version, as the "
        "table has no column mapping (delta.columnMapping.mode = name).",
        kept=KEPT,
        do=advice,
    )
