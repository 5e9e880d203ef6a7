"""What a run knows of the files that another program loaded into the table, and what follows from it."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    CheckpointCorruptError,
    WatermarkChangedError,
)
from airflow_provider_scope.protocol import records
from airflow_provider_scope.protocol.records import FORMAT
from airflow_provider_scope.sources.files.discovery import is_changed
from airflow_provider_scope.values import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from airflow_provider_scope.sources.files.discovery import Status, Tally
    from airflow_provider_scope.values import FileEntry


NAMED_AT_MOST = 5

LIST_LIMIT_BYTES = 64 * 1024 * 1024
"""Of one list of files; a control file of 256 MiB or more is not read."""


class LoadedFile(NamedTuple):
    """A file that ``sources/`` names."""

    batch_id: int
    path: str
    """URI, as listings give it."""
    modified_ms: int
    """What dbt-scope wrote down, which can be one less than the file's own time."""
    processed: str
    size_bytes: int | None = None
    """None where dbt-scope wrote the row: it does not note the size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """``taken_over/<n>``: from entry ``seq`` on this pipeline goes on where dbt-scope had come to.

    Without ``batch_id`` nothing was taken over: a full refresh replaced what dbt-scope had loaded.
    """

    number: int
    pipeline: str
    """The pipeline for which it counts: a run that died may have left a record of another one."""
    seq: int
    """The first entry after it. Earlier entries no longer say which files are loaded."""
    watermark: str | None
    """Digest of ``watermark.json`` as it was; None if there was none."""
    batch_id: int | None
    """dbt-scope's newest batch."""
    modified_time: str
    """``modifiedTime``, as dbt-scope wrote it."""
    floor_ms: int | None
    """The same in whole milliseconds; None if dbt-scope wrote no time, so that ``files`` alone tell."""
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

    @property
    def next_batch_id(self) -> int:
        """What dbt-scope would call the first batch after it."""
        return 0 if self.batch_id is None else self.batch_id + 1


# ---- records -----------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """Give what tells contents apart."""
    return hashlib.sha256(data).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The keys of a line of a list, in the order of ``LoadedFile``."""

    batch_id: int
    path: str
    modified: int
    processed: str
    size: int | None


def encode_files(files: Iterable[LoadedFile], limit_bytes: int = LIST_LIMIT_BYTES) -> Iterator[bytes]:
    """Give the bytes of each ``taken_over/<digest>.files``: one line a file, in the order of the batches.

    :param limit_bytes: A list that is longer goes on in another one.
    """
    lines: list[bytes] = []
    room = limit_bytes
    for file in sorted(files, key=lambda file: file[:3]):
        line = f"{records.row_line(_Line, file)}\n".encode()
        if lines and len(line) > room:
            yield b"".join(lines)
            lines, room = [], limit_bytes
        lines.append(line)
        room -= len(line)
    if lines:
        yield b"".join(lines)


def decode_files(name: str, data: bytes, expected: str) -> list[LoadedFile]:
    """Read ``taken_over/<digest>.files``.

    :raises CheckpointCorruptError: It is not what was written under this name.
    """
    if digest(data) != expected:
        raise records.corrupt(name, "was changed after it was written")
    return records.rows(_Line, LoadedFile, name, data.decode().split("\n")[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``taken_over/<digest>.decided``: somebody said what became of files that no record names."""

    watermark: str
    """Digest of the ``watermark.json`` that it is about, and no other."""
    loaded: bool
    """Whether files with exactly the watermark's time are in the table."""
    format: int = FORMAT


# ---- which of them counts ----------------------------------------------------------------------------


def counting(takeovers: Sequence[Takeover], refresh_start: int | None) -> Takeover | None:
    """Give the takeover that still says which files are loaded: none after a later full refresh."""
    newest = next((taken for taken in reversed(takeovers) if taken.batch_id is not None), None)
    if newest is None or (refresh_start is not None and refresh_start >= newest.seq):
        return None
    return newest


def epoch_start(refresh_start: int | None, taken: Takeover | None) -> int:
    """Give the first entry whose files count as loaded."""
    return taken.seq if taken else refresh_start or 0


def covered(watermark: bytes | None) -> tuple[int, int | None] | None:
    """Give the committed entry and the refresh that a ``watermark.json`` of ours stands for.

    None for any other.
    """
    value = _as_object(watermark) or {}
    seq, start = value.get("seq"), value.get("refreshStart")
    if type(seq) is int and (start is None or type(start) is int):
        return seq, start
    return None


def is_ours(watermark: bytes | None) -> bool:
    """Tell whether this package wrote a ``watermark.json``: dbt-scope drops the keys it does not know."""
    value = _as_object(watermark)
    return value is not None and type(value.get("seq")) is int


def is_dbt_scopes(watermark: bytes | None) -> bool:
    """Tell whether dbt-scope wrote a ``watermark.json``."""
    value = _as_object(watermark)
    return value is not None and "seq" not in value and "batchId" in value


def _as_object(data: bytes | None) -> dict[str, object] | None:
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def was_written_around(
    watermark: bytes | None, takeovers: Sequence[Takeover], overwrite_start: int | None
) -> bool:
    """Tell whether another program wrote ``watermark.json`` after this pipeline began, or deleted it.

    :param overwrite_start: The newest entry that replaces the whole table, and with it what others loaded.
    """
    for taken in reversed(takeovers):
        replaced = overwrite_start is not None and overwrite_start >= taken.seq
        if (taken.batch_id is not None or replaced) and taken.watermark == (watermark and digest(watermark)):
            return False
    if takeovers:
        # dbt-scope's full refresh begins by deleting it; an upload that was cut short leaves it empty.
        return not is_ours(watermark)
    return is_dbt_scopes(watermark)


def check_watermark(
    watermark: bytes | None, takeovers: Sequence[Takeover], overwrite_start: int | None, checkpoint: str
) -> None:
    """Refuse a checkpoint that another program has advanced since this pipeline began.

    :raises WatermarkChangedError: As said.
    """
    if not was_written_around(watermark, takeovers, overwrite_start):
        return
    value = _as_object(watermark) or {}
    if watermark is None:
        problem = "is missing: somebody deleted it, or a full refresh of dbt-scope has begun"
        do = "if the table's rows are all there, run `airflow scope rebuild`, which writes it again"
    elif not is_dbt_scopes(watermark):
        problem = "cannot be read: an upload by dbt-scope may have been interrupted"
        do = "if dbt-scope did not run, `airflow scope rebuild` writes it again"
    else:
        problem = (
            f"says batch {value.get('batchId')}, and this package did not write it: dbt-scope has run since"
        )
        do = (
            "run `airflow scope take-over`, which shows what continuing from there means, and does it "
            "with --yes"
        )
    raise WatermarkChangedError(
        f"{checkpoint}/watermark.json {problem}. It is not known what else is in the table.",
        kept="the table, the log and all files; nothing was written",
        do=f"stop dbt-scope for this table. Then {do}. Or run the task once with full_refresh=True, which "
        "replaces the table's rows with those of all files",
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
    """Give the files that dbt-scope has not loaded, as far as its watermark tells.

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
    names = ", ".join(printable(file.path) for file in files[:NAMED_AT_MOST])
    more = f" and {len(files) - NAMED_AT_MOST:,} more" if len(files) > NAMED_AT_MOST else ""
    return BatchOutcomeUnknownError(
        f"{len(files):,} files have exactly the time of dbt-scope's watermark ({taken.modified_time}), and "
        f"sources/ has no record of its newest batch {taken.batch_id}: {names}{more}. Some of them are in "
        "the table, and it is not known which.",
        kept="the table, the checkpoint and all files; nothing was written",
        do="look at the rows of these files in the table. If all of them are there, run `airflow scope "
        "take-over --at-watermark loaded`. If none is, or once you have deleted their rows, run "
        "`airflow scope take-over --at-watermark new`",
    )


# ---- What dbt-scope writes beside a table, read as its own code reads it, but strictly ----


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Watermark:
    """``watermark.json``; a key that is missing has dbt-scope's default."""

    version: int = 0
    modified_time: str = ""
    batch_id: int = 0
    modified_ms: int | None = None
    """``modified_time`` in whole milliseconds, or None: dbt-scope then takes every file."""


def decode_watermark(name: str, data: bytes) -> Watermark:
    """Read ``watermark.json``.

    :raises CheckpointCorruptError: It is not what dbt-scope writes.
    """
    value = _object(name, data)
    version, batch_id = value.get("version", 0), value.get("batchId", 0)
    for key, number in (("version", version), ("batchId", batch_id)):
        if type(number) is not int or number < 0:
            raise damaged(name, f"has {key}={number!r}, expected a whole number, 0 or more")
    modified = value.get("modifiedTime", "")
    if not isinstance(modified, str):
        raise damaged(name, f"has modifiedTime={modified!r}, expected a time as text")
    return Watermark(version, modified, batch_id, _milliseconds(name, modified) if modified else None)


def _milliseconds(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise damaged(name, f"has modifiedTime={text!r}, which has no time zone")
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as err:
        raise damaged(name, f"has modifiedTime={text!r}, which is not a time") from err


def decode_sources(name: str, data: bytes, batch_id: int, store: str) -> list[LoadedFile]:
    """Read ``sources/<batchId>``.

    :param store: What stands before the paths in URIs.
    :raises CheckpointCorruptError: It is not what dbt-scope writes.
    """
    try:
        # Not splitlines(): a path may hold any of the other characters that it takes for line ends.
        lines = data.decode().split("\n")
    except UnicodeDecodeError as err:
        raise damaged(name, f"is not UTF-8 ({err})") from err
    rows = [loaded_file(name, _object(name, line), store) for line in lines if line.strip()]
    for row in rows:
        if row.batch_id != batch_id:
            raise damaged(name, f"holds a file of batch {row.batch_id}")
    return rows


def loaded_file(name: str, row: Mapping[str, Any], store: str) -> LoadedFile:
    """Give a row of ``sources/`` as a value; rows of ours have the URI and the size, too.

    :raises CheckpointCorruptError: A key is missing or has another type.
    """
    path, modified, batch_id = row.get("path"), row.get("modificationTime"), row.get("batchId")
    if not isinstance(path, str) or not path.startswith("/"):
        raise damaged(name, f"has path={path!r}, expected a path that begins with /")
    for key, number in (("modificationTime", modified), ("batchId", batch_id)):
        if type(number) is not int or number < 0:
            raise damaged(name, f"has {key}={number!r}, expected a whole number, 0 or more")
    uri, size = row.get("uri"), row.get("size")
    return LoadedFile(
        batch_id,  # type: ignore[arg-type] # an int, as seen above
        uri if isinstance(uri, str) else store + path,
        modified,  # type: ignore[arg-type]
        _text(row.get("batchProcessingTime")),
        size if type(size) is int else None,
    )


def _text(processed: object) -> str:
    """Give ``batchProcessingTime`` as text: DuckDB turns it into a timestamp in snapshots."""
    if isinstance(processed, datetime):
        moment = processed if processed.tzinfo else processed.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    return processed if isinstance(processed, str) else ""


def _object(name: str, data: bytes | str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise damaged(name, f"is not JSON ({err})") from err
    if not isinstance(value, dict):
        raise damaged(name, f"holds {type(value).__name__}, not an object")
    return value


def damaged(name: str, problem: str) -> CheckpointCorruptError:
    """Give the error for a file of dbt-scope that cannot be read."""
    return CheckpointCorruptError(
        f"{name}, which dbt-scope wrote, {problem}. It is not known what dbt-scope has loaded.",
        kept="the table, the checkpoint and all files; nothing was written",
        do="restore the file from a copy. Or run the task once with full_refresh=True, which replaces the "
        "table's rows with those of all files, and needs nothing that dbt-scope wrote",
    )
