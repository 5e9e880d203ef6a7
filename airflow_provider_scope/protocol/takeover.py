"""dbt-scope beside this package: its files as we write them, what it has loaded, and what follows from that.

``watermark.json`` and ``sources/`` (dbt-scope's keys, and ours beside them) are derived from the log and can
be rebuilt from it; nothing is decided by them.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, WatermarkChangedError
from airflow_provider_scope.protocol.records import FORMAT
from airflow_provider_scope.protocol.seen import is_changed
from airflow_provider_scope.values import OTHERS_NAMED, iso_time, some_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.seen import Status, Tally
    from airflow_provider_scope.values import FileEntry

REFRESH = "run the task once with full_refresh=True, which replaces the table's rows with those of all files"
"""What a person may do where it is not known which files are loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """``taken_over/<n>``: from entry ``seq`` on, this pipeline continues after what dbt-scope loaded."""

    PATH: ClassVar[str] = "taken_over/{number:020}"
    number: int
    seq: int
    """The first entry after it. Earlier entries no longer say which files are loaded."""
    watermark: str
    """Digest of ``watermark.json`` as it was."""
    batch_id: int
    """dbt-scope's newest batch."""
    modified_time: str
    """``modifiedTime``, as dbt-scope wrote it."""
    floor_ms: int | None
    """The same in whole milliseconds; None if dbt-scope wrote no time: the listed files alone count."""
    is_recorded: bool
    """Whether ``sources/`` named the files of the newest batch."""
    missing: int
    """Batches of which ``sources/`` told nothing."""
    at_floor: tuple[str, ...]
    """Files that ``sources/`` names with exactly the watermark's time."""
    files: int
    """Files that ``sources/`` told of."""
    lists: tuple[str, ...]
    """Digests that name the lists of these files."""
    store: str
    """What stands before the paths in the URIs, such as ``adl://acme.azuredatalakestore.net``."""
    taken_at_ms: int
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``taken_over/<digest>.decided``: somebody said what became of files that no record names."""

    PATH: ClassVar[str] = "taken_over/{watermark}.decided"
    watermark: str
    """Digest of the ``watermark.json`` that it is about, and no other."""
    loaded: bool
    """Whether files with exactly the watermark's time are in the table."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Epoch:
    """The entries that say which files are loaded, with what dbt-scope had loaded before them."""

    refresh_start: int | None = None
    taken: Takeover | None = None

    @classmethod
    def of(cls, entry: OffsetEntry | None, newest: Takeover | None) -> Epoch:
        """Choose what counts at an entry: a takeover does until a later full refresh begins.

        :param newest: The newest takeover.
        """
        start = entry.refresh_start if entry else None
        counts = newest is not None and (start is None or start < newest.seq)
        return cls(start, newest if counts else None)

    @property
    def start(self) -> int:
        return self.taken.seq if self.taken else self.refresh_start or 0

    @property
    def folder(self) -> str:
        """The folder of their segments in ``seen/``."""
        return f"{self.start:020}-{self.taken.number}" if self.taken else f"{self.start:020}"

    @property
    def first_batch_id(self) -> int:
        """dbt-scope's number of the first one: it goes on after a takeover, and restarts at 0 otherwise."""
        return self.taken.batch_id + 1 if self.taken else 0

    def batch_id(self, seq: int) -> int:
        return seq - self.start + self.first_batch_id


# ---- its files, as we write them ---------------------------------------------------------------------


def uri_path(uri: str) -> str:
    """Return the path of a URI, with its leading slash."""
    place = uri.split("://", 1)[1]
    return place[place.index("/") :]


def watermark(entry: OffsetEntry, batch_id: int) -> bytes:
    """Return ``watermark.json`` after the batch of ``entry`` was committed.

    ``version``, ``modifiedTime`` and ``batchId`` are dbt-scope's; its reader ignores the others.

    :param batch_id: dbt-scope's number of the batch.
    """
    highest = entry.slice.highest
    value = {
        "version": batch_id,
        "modifiedTime": iso_time(highest.modified_ms) if highest else "",
        "batchId": batch_id,
        "path": uri_path(highest.path) if highest else "",
        "refreshStart": entry.refresh_start,
        "seq": entry.seq,
    }
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def audit_rows(entry: OffsetEntry, commit: CommitRecord, batch_id: int) -> list[dict[str, Any]]:
    """Return the files of a committed batch in the words of dbt-scope's audit; none of an abandoned one.

    :param batch_id: dbt-scope's number of the batch.
    """
    return [
        {
            "path": uri_path(file.path),
            "modificationTime": file.modified_ms,
            "batchId": batch_id,
            "batchProcessingTime": iso_time(commit.committed_at_ms),
            "size": file.size_bytes,
            "seq": entry.seq,
            "uri": file.path,
        }
        for file in (() if commit.abandoned else entry.slice.audited)
    ]


def audit_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return ``sources/<batchId>``: one object a line, and no newline at the end, as dbt-scope writes it."""
    return "\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows).encode()


def expired(names: Sequence[str], newest: int, keep: int, first: int = 0) -> list[str]:
    """Return the files of ``sources/`` that are deleted: old ones, and those that an earlier refresh left.

    :param newest: The number of the newest batch.
    :param keep: How many of the newest are kept.
    :param first: The first batch of ours. dbt-scope's snapshots below it stay; from there on they are of an
        earlier refresh, whose files dbt-scope would take for loaded.
    """
    diffs = sorted(filter(is_diff, names), key=number)
    outside = [name for name in diffs if not newest - keep < number(name) <= newest]
    return outside + [name for name in names if is_snapshot(name) and number(name) >= first]


def is_diff(name: str) -> bool:
    return re.fullmatch("[0-9]+", name) is not None


def is_snapshot(name: str) -> bool:
    return name.endswith(".parquet") and is_diff(name.removesuffix(".parquet"))


def number(name: str) -> int:
    """Return the batch id in the name of a file of ``sources/``."""
    return int(name.removesuffix(".parquet"))


# ---- has dbt-scope run since? ------------------------------------------------------------------------


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def covered(watermark: bytes | None) -> tuple[int, int | None] | None:
    """Return the committed entry and the refresh that a ``watermark.json`` of ours stands for.

    None for any other.
    """
    value = _as_object(watermark) or {}
    seq, start = value.get("seq"), value.get("refreshStart")
    if type(seq) is int and (start is None or type(start) is int):
        return seq, start
    return None


def is_dbt_scopes(watermark: bytes | None) -> bool:
    """Return whether dbt-scope wrote a ``watermark.json``: it drops the keys that it does not know."""
    value = _as_object(watermark)
    return value is not None and "seq" not in value and "batchId" in value


def _as_object(data: bytes | None) -> dict[str, object] | None:
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def was_written_around(watermark: bytes | None, newest: Takeover | None, entry: OffsetEntry | None) -> bool:
    """Return whether another program wrote ``watermark.json`` after this pipeline began, or deleted it.

    :param newest: The newest takeover.
    :param entry: The newest entry.
    """
    taken_into_account = (newest and newest.watermark, entry and entry.void_watermark)
    if not any(taken_into_account):
        return is_dbt_scopes(watermark)
    # dbt-scope's full refresh begins by deleting it; an upload that was cut short leaves it empty.
    return covered(watermark) is None and digest(watermark or b"") not in taken_into_account


def void_watermark(watermark: bytes | None, newest: Takeover | None, entry: OffsetEntry | None) -> str | None:
    """Return the digest of dbt-scope's ``watermark.json`` that a full refresh makes void, if there is one.

    :param newest: The newest takeover.
    :param entry: The entry before the refresh.
    """
    if was_written_around(watermark, newest, entry):
        return digest(watermark or b"")
    return entry.void_watermark if entry else None


def check_watermark(
    watermark: bytes | None, newest: Takeover | None, entry: OffsetEntry | None, checkpoint: str
) -> None:
    """Refuse a checkpoint that another program has advanced since this pipeline began.

    :raises WatermarkChangedError: As said.
    """
    if not was_written_around(watermark, newest, entry):
        return
    # It is rebuilt from our batches, and right after a takeover there is none.
    has_batch = newest is None or (entry is not None and entry.seq >= newest.seq)
    write_again = "`airflow scope rebuild` writes it again" if has_batch else "restore it from a copy"
    if watermark is None:
        problem = "is missing: somebody deleted it, or a full refresh of dbt-scope has begun"
        do = f"if the table's rows are all there, {write_again}"
    elif not is_dbt_scopes(watermark):
        problem = "cannot be read: an upload by dbt-scope may have been interrupted"
        do = f"if dbt-scope did not run, {write_again}"
    else:
        batch_id = (_as_object(watermark) or {}).get("batchId")
        problem = f"says batch {batch_id}, and this package did not write it: dbt-scope has run since"
        do = (
            "run `airflow scope take-over`, which shows what continuing from there means, and does it "
            "with --yes"
        )
    raise WatermarkChangedError(
        f"{checkpoint}/watermark.json {problem}. It is not known what else is in the table.",
        kept="the table, the log and all files; nothing was written",
        do=f"stop dbt-scope for this table. Then {do}. Or {REFRESH}",
    )


# ---- which files are loaded --------------------------------------------------------------------------


def not_loaded(
    files: Sequence[FileEntry],
    taken: Takeover,
    seen: Mapping[str, Status],
    decision: Decision | None,
    tally: Tally,
    *,
    history: bool = True,
) -> list[FileEntry]:
    """Return the files that dbt-scope has not loaded, as far as its watermark tells.

    A file below the watermark counts as loaded whatever the records say: dbt-scope never looks at it
    again. A file with exactly the watermark's time was loaded if the records of the newest batch name it.

    :param files: In the order of ingestion.
    :param seen: Files that are known as loaded by their path.
    :param tally: Files below the watermark that no record names are counted into it.
    :param history: False if ``seen`` is empty because nobody read it.
    :raises BatchOutcomeUnknownError: The newest batch has no record, several files have the watermark's
        very time, and nobody decided.
    """
    if taken.floor_ms is None:
        return list(files)
    first = bisect_left(files, taken.floor_ms, key=lambda file: file.modified_ms)
    above = bisect_right(files, taken.floor_ms, key=lambda file: file.modified_ms)
    _count_below(files[:first], seen, tally, history=history)
    at_floor = set(taken.at_floor)
    ties = [file for file in files[first:above] if file.path in seen or file.path not in at_floor]
    unknown = [file for file in ties if file.path not in seen and not taken.is_recorded]
    if len(unknown) > 1 and decision is None:
        raise _undecidable(unknown, taken)
    # The watermark is the time of a file of the newest batch: if only one has it, it is that file.
    loaded = {file.path for file in unknown if decision is None or decision.loaded}
    for path in sorted(loaded):
        tally.add("at the watermark taken over", path)
    return [*(file for file in ties if file.path not in loaded), *files[above:]]


def _count_below(
    files: Sequence[FileEntry], seen: Mapping[str, Status], tally: Tally, *, history: bool
) -> None:
    if not history:
        tally.add_unnamed("loaded before, or late", len(files))
        return
    for file in files:
        before = seen.get(file.path)
        if before is None:
            tally.add("before the watermark taken over", file.path)
        elif is_changed(file, before):
            tally.add("changed after it was loaded", file.path)


def _undecidable(files: Sequence[FileEntry], taken: Takeover) -> BatchOutcomeUnknownError:
    names = some_names([file.path for file in files], OTHERS_NAMED)
    return BatchOutcomeUnknownError(
        f"{len(files):,} files have exactly the time of dbt-scope's watermark ({taken.modified_time}), and "
        f"sources/ has no record of its newest batch {taken.batch_id}: {names}. Some of them are in "
        "the table, and it is not known which.",
        kept="the table and all files; no batch was logged",
        do="look at the rows of these files in the table. If all of them are there, run `airflow scope "
        "take-over --at-watermark loaded`. If none is, or once you have deleted their rows, run "
        "`airflow scope take-over --at-watermark new`",
    )
