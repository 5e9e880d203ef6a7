"""What dbt-scope left beside a table: reading it, taking it over, and noticing that dbt-scope went on."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_scope.exceptions import (
    CheckpointCorruptError,
    CheckpointVersionError,
    InputError,
    ScopeProviderError,
    StorageError,
    WatermarkChangedError,
)
from airflow_provider_scope.protocol import takeover
from airflow_provider_scope.protocol.derived import loaded_files, newest_of_each, put_taken_files, rows_of
from airflow_provider_scope.protocol.takeover import REFRESH, Decision, Epoch, Takeover, digest
from airflow_provider_scope.values import is_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.seen import Tally
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import FileEntry

logger = logging.getLogger(__name__)

# ---- its files, read as its own code reads them, but strictly --------------------------------------------

_COLUMNS = ("path", "modificationTime", "batchId", "uri", "size")
_AT_ONCE = 65_536
"""Rows that are turned into Python values together."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST = 2**63 - 1
"""The largest number that a list of loaded files can hold."""
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""JSON can hold one, and UTF-8 cannot: no storage has a file of such a name."""


class LoadedFile(NamedTuple):
    """A file that ``sources/`` names."""

    batch_id: int
    path: str
    """URI, as listings give it."""
    modified_ms: int
    """What dbt-scope wrote down, which can be one less than the file's own time."""
    size_bytes: int | None
    """None where dbt-scope wrote the row: it does not note the size."""


@dataclass(frozen=True, slots=True)
class DbtScopeState:
    """dbt-scope's checkpoint at one moment."""

    watermark: str
    """Digest of ``watermark.json``."""
    batch_id: int
    """Its newest batch."""
    modified_time: str
    floor_ms: int | None
    """``modified_time`` in whole milliseconds, or None: dbt-scope then takes every file."""
    files: tuple[LoadedFile, ...]
    """Each file once: of a file that was loaded again, the newest row."""
    batches: frozenset[int]
    """Batches of which ``sources/`` tells the files."""

    @property
    def missing(self) -> int:
        """How many batches it does not."""
        return self.batch_id + 1 - len(self.batches)


def read_state(storage: Storage, location: str, store: str) -> DbtScopeState | None:
    """Read the checkpoint of dbt-scope; None if there is none.

    All files of ``sources/`` are read, not only the newest snapshot: dbt-scope leaves out of a snapshot
    what it cannot read, and its retention may delete the newest one first.

    :param location: Canonical URI of the checkpoint folder.
    :param store: What stands before the paths in URIs.
    :raises CheckpointCorruptError: A file is not what dbt-scope writes, or contradicts the watermark.
    :raises CheckpointVersionError: A full refresh of dbt-scope is going on, or has died.
    :raises StorageError: A file could not be read, or dbt-scope is writing.
    """
    name, folder = f"{location}/watermark.json", f"{location}/sources"
    before = storage.read(name)
    names = [n for n in storage.names(folder) if takeover.is_diff(n) or takeover.is_snapshot(n)]
    if before is None and not names:
        return None
    if before is None:
        raise CheckpointVersionError(
            f"{folder} holds {len(names):,} files of another program, but there is no {name}: a "
            "full refresh of dbt-scope is running, or was interrupted.",
            kept="the table and the checkpoint; nothing was written",
            do=f"let dbt-scope complete the refresh, then run again. Or {REFRESH}",
        )
    batch_id, modified_time = _watermark(name, before)
    floor_ms = _milliseconds(name, modified_time) if modified_time else None
    newest = max(map(takeover.number, names), default=-1)
    if newest > batch_id:
        raise _damaged(folder, f"goes up to batch {newest}, but {name} ends at {batch_id}")
    files: dict[str, LoadedFile] = {}
    batches: set[int] = set()
    for file in _files(storage, folder, names, store):
        batches.add(file.batch_id)
        older = files.get(file.path)
        if older is None or older.batch_id <= file.batch_id:
            files[file.path] = file
    if storage.read(name) != before:
        raise _is_loading(f"{name} changed while it was read")
    state = DbtScopeState(
        digest(before), batch_id, modified_time, floor_ms, tuple(files.values()), frozenset(batches)
    )
    if floor_ms is None and state.missing:
        raise _damaged(
            name,
            f"has no modifiedTime, and {folder} does not name the files of "
            f"{state.missing:,} of its {batch_id + 1:,} batches",
        )
    return state


def _files(storage: Storage, folder: str, names: Sequence[str], store: str) -> Iterator[LoadedFile]:
    for name in names:
        path = f"{folder}/{name}"
        data = storage.read(path)
        if data is None:
            raise _is_loading(f"{path} was listed but is missing now")
        is_snapshot, number = takeover.is_snapshot(name), takeover.number(name)
        for row in _snapshot_rows(path, data) if is_snapshot else _diff_rows(path, data):
            file = _loaded_file(path, row, store)
            # A snapshot also holds the files of the batches before it.
            if file.batch_id > number or (file.batch_id < number and not is_snapshot):
                raise _damaged(path, f"holds a file of batch {file.batch_id}")
            yield file


def _snapshot_rows(name: str, data: bytes) -> Iterator[dict[str, Any]]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        columns = [column for column in _COLUMNS if column in file.schema_arrow.names]
        for part in file.iter_batches(_AT_ONCE, columns=columns):
            yield from part.to_pylist()
    except (pa.ArrowException, ValueError, OSError) as err:
        raise _damaged(name, f"cannot be read ({type(err).__name__}: {err})") from err


def _diff_rows(name: str, data: bytes) -> Iterator[dict[str, Any]]:
    try:
        # Not splitlines(): a path may hold any of the other characters that it takes for line ends.
        lines = data.decode().split("\n")
    except UnicodeDecodeError as err:
        raise _damaged(name, f"is not UTF-8 ({err})") from err
    return (_object(name, line) for line in lines if line.strip())


def _watermark(name: str, data: bytes) -> tuple[int, str]:
    """Read ``batchId`` and ``modifiedTime``; of a key that is missing, dbt-scope's default."""
    value = _object(name, data)
    _whole(name, value, "version", default=0)
    modified = value.get("modifiedTime", "")
    if not isinstance(modified, str):
        raise _damaged(name, f"has modifiedTime={modified!r}, expected a time as text")
    return _whole(name, value, "batchId", default=0), modified


def _milliseconds(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise _damaged(name, f"has modifiedTime={text!r}, which has no time zone")
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as err:
        raise _damaged(name, f"has modifiedTime={text!r}, which is not a time") from err


def _loaded_file(name: str, row: Mapping[str, Any], store: str) -> LoadedFile:
    """Check a row of ``sources/``; rows of ours have the URI and the size, too."""
    path = row.get("path")
    if not isinstance(path, str) or not path.startswith("/") or _HALF_CHARACTER.search(path):
        raise _damaged(name, f"has path={path!r}, expected a path that begins with /")
    modified, batch_id = _whole(name, row, "modificationTime"), _whole(name, row, "batchId")
    uri, size = row.get("uri"), row.get("size")
    return LoadedFile(
        batch_id,
        uri if isinstance(uri, str) else store + path,
        modified,
        # A snapshot of dbt-scope may have another type for a number that not all of its rows have.
        size if type(size) is int and size <= _LARGEST else None,
    )


def _whole(name: str, value: Mapping[str, Any], key: str, default: int | None = None) -> int:
    number = value.get(key, default)
    if type(number) is not int or not 0 <= number <= _LARGEST:
        raise _damaged(name, f"has {key}={number!r}, expected a whole number, 0 or more")
    return number


def _object(name: str, data: bytes | str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise _damaged(name, f"is not JSON ({err})") from err
    if not isinstance(value, dict):
        raise _damaged(name, f"holds {type(value).__name__}, not an object")
    return value


def _is_loading(sign: str) -> StorageError:
    return StorageError(
        f"{sign}: dbt-scope is loading the table.",
        kept="the table and the checkpoint; nothing was written",
        do="stop dbt-scope: only one of the two may load a table",
    )


def _damaged(name: str, problem: str) -> CheckpointCorruptError:
    return CheckpointCorruptError(
        f"{name}, which dbt-scope wrote, {problem}. It is not known what dbt-scope has loaded.",
        kept="the table, the checkpoint and all files; nothing was written",
        do=f"restore the file from a copy. Or {REFRESH}, and needs nothing that dbt-scope wrote",
    )


# ---- taking it over --------------------------------------------------------------------------------------


def take_over(
    log: CheckpointLog, view: LogView, roots: Sequence[str], new_id: Callable[[], str], now_ms: int
) -> bool:
    """Record what dbt-scope has loaded into the table of a pipeline that has no entry.

    ``pipeline.json`` comes first. If a run dies before the record, the next one takes over what it finds.

    :return: Whether the log has to be read again: there is a record now, or another run has logged a batch,
        so that what is there may be its own work.
    :raises CheckpointError: What dbt-scope has loaded is not known; see ``read_state``.
    :raises InputError: The roots are not those of dbt-scope, or are on several stores.
    """
    stores = sorted({store_of(root) for root in roots})
    try:
        state = read_state(log.storage, log.location, stores[0])
        if state:
            _check_roots(state, roots, stores)
    except ScopeProviderError:
        if log.is_begun():
            return True
        raise
    if state and not log.is_begun():
        if view.pipeline is None:
            log.begin(new_id(), view.table)
        write(log, _record_of(state, stores[0], now_ms), state)
        logger.info("took over %s from dbt-scope", log.location)
    return state is not None


def store_of(uri: str) -> str:
    """Return what stands before the path in a URI."""
    scheme, place = uri.split("://", 1)
    return f"{scheme}://{place.split('/', 1)[0]}"


def _check_roots(state: DbtScopeState, roots: Sequence[str], stores: Sequence[str]) -> None:
    if len(stores) > 1:
        raise InputError(
            f"The roots are on several stores ({', '.join(stores)}), and dbt-scope's records do not say on "
            "which of them a file is.",
            kept="the table, the checkpoint and all files; nothing was written",
            do="until the table is taken over, name only the roots that dbt-scope had",
        )
    if state.files and not any(is_below(file.path, tuple(roots)) for file in state.files):
        raise InputError(
            f"None of the {len(state.files):,} files that dbt-scope loaded, such as {state.files[0].path}, "
            f"is below the roots ({', '.join(roots)}).",
            kept="the table, the checkpoint and all files; nothing was written",
            do="name the roots that dbt-scope had. If its files were moved, they have other paths and "
            "times now, and would all be loaded again: use a separate checkpoint location, and "
            "starting_timestamp",
        )


def _record_of(state: DbtScopeState, store: str, now_ms: int, *, number: int = 0, seq: int = 0) -> Takeover:
    """Return the record of what dbt-scope left, without the lists."""
    floor = state.floor_ms
    return Takeover(
        number=number,
        seq=seq,
        watermark=state.watermark,
        batch_id=state.batch_id,
        modified_time=state.modified_time,
        floor_ms=floor,
        is_recorded=state.batch_id in state.batches,
        missing=state.missing,
        # dbt-scope cuts a float of milliseconds off, which can make it one less.
        at_floor=tuple(
            sorted(f.path for f in state.files if floor is not None and floor - f.modified_ms in (0, 1))
        ),
        files=len(state.files),
        lists=(),
        store=store,
        taken_at_ms=now_ms,
    )


def not_loaded(
    log: CheckpointLog, view: LogView, files: Sequence[FileEntry], tally: Tally, *, history: bool = True
) -> Sequence[FileEntry]:
    """Return the files that dbt-scope has not loaded; see ``protocol.takeover.not_loaded``."""
    taken = view.epoch.taken
    if taken is None:
        return files
    if taken.floor_ms is None and not history:
        raise InputError(
            "late_files='skip' reads no history, and dbt-scope's watermark has no time: it is not known "
            "which files are loaded.",
            kept="the table, the checkpoint and all files; nothing was written",
            do="use late_files='ingest'",
        )
    decision = None if taken.is_recorded else log.find(Decision, watermark=taken.watermark)
    statuses = view.seen.find([file.path for file in files])
    return takeover.not_loaded(files, taken, statuses, decision, tally, history=history)


# ---- noticing that it went on ----------------------------------------------------------------------------


def is_first(log: CheckpointLog) -> bool:
    """Return whether the next run takes over by itself, because nothing was logged or taken over yet."""
    return not log.is_begun() and log.takeover(None) is None


def existing_state(log: CheckpointLog, store: str = "") -> DbtScopeState:
    """Read what dbt-scope left.

    :param store: What stands before the paths in URIs; of no matter where only the batches count.
    :raises InputError: It left nothing.
    """
    state = read_state(log.storage, log.location, store)
    if state is None:
        raise InputError(
            f"There is nothing of dbt-scope in {log.location}.",
            kept="everything; nothing was written",
            do="check the location; if the checkpoint is outside the table, add --checkpoint",
        )
    return state


def undecided_watermark(log: CheckpointLog) -> str:
    """Return the digest of the watermark whose newest batch has no record.

    :raises InputError: There is no such batch.
    """
    if is_first(log):
        state = existing_state(log)
        watermark = None if state.batch_id in state.batches else state.watermark
    else:
        newest = log.newest_offset()
        taken = Epoch.of(newest, log.takeover(newest)).taken
        watermark = taken.watermark if taken and not taken.is_recorded else None
    if watermark is None:
        raise InputError(
            f"There is nothing to decide in {log.location}: the files of dbt-scope's newest batch are known.",
            kept="everything; nothing was written",
            do="leave --at-watermark out",
        )
    return watermark


def continuation(log: CheckpointLog, now_ms: int) -> tuple[Takeover, DbtScopeState] | None:
    """Return what is to be taken over because dbt-scope loaded batches of its own; None if it did not.

    :raises InputError: Batches are open, which dbt-scope may have loaded.
    :raises WatermarkChangedError: What dbt-scope did cannot be added to what the log says.
    """
    newest = log.newest_offset()
    before = log.takeover(newest)
    watermark = log.watermark()
    if not takeover.was_written_around(watermark, before, newest):
        return None
    if not takeover.is_dbt_scopes(watermark):
        takeover.check_watermark(watermark, before, newest, log.location)
    still_open = [entry.seq for entry in log.open_entries()]
    if still_open:
        raise InputError(
            f"Batch {still_open[0]} of {log.location} is open, and dbt-scope has run since it was logged: it "
            "may have loaded the same files.",
            kept="everything; nothing was written",
            do=REFRESH,
        )
    store = before.store if before else ""
    if newest and newest.slice.audited:
        store = store_of(newest.slice.audited[0].path)
    state = existing_state(log, store)
    _check_continues(state, before, newest, log.location)
    number, seq = before.number + 1 if before else 0, newest.seq + 1 if newest else 0
    return _record_of(state, store, now_ms, number=number, seq=seq), state


def _check_continues(
    state: DbtScopeState, before: Takeover | None, newest: OffsetEntry | None, checkpoint: str
) -> None:
    """Refuse a watermark that does not follow on the newest batch: dbt-scope started over, or went back."""
    epoch = Epoch.of(newest, before)
    last = epoch.batch_id(newest.seq if newest else -1)
    highest = newest.slice.highest if newest else None
    floor = highest.modified_ms if highest else 0
    if state.batch_id > last and state.floor_ms is not None and state.floor_ms >= floor:
        return
    raise WatermarkChangedError(
        f"dbt-scope's watermark in {checkpoint} (batch {state.batch_id}, "
        f"{state.modified_time or 'no time'}) does not follow from batch {last} of the log: dbt-scope "
        "has started over, or from an older state.",
        kept="the table, the log and all files; nothing was written",
        do=REFRESH,
    )


def write(log: CheckpointLog, taken: Takeover, state: DbtScopeState) -> Takeover:
    """Put the record of a takeover, and before it the files that it names.

    Those are also the files that counted as loaded before: ``sources/`` names those of the newest batches.
    """
    newest = log.newest_offset()
    epoch = Epoch.of(newest, log.takeover(newest))
    # Of a file in several lists, the last one counts. What the log says of our files is more than what
    # sources/ says of them, and dbt-scope may have loaded some of them again since.
    tables = [
        _sorted(file for file in state.files if file.size_bytes is not None),
        *(loaded_files(log, epoch, newest.seq + 1) if newest else ()),
        _sorted(file for file in state.files if file.size_bytes is None),
    ]
    before = epoch.taken.lists if epoch.taken else ()
    lists = [name for table in tables for name in put_taken_files(log, table)]
    return log.put(replace(taken, lists=(*before, *lists)))


def _sorted(files: Iterable[LoadedFile]) -> pa.Table:
    return newest_of_each(
        rows_of((file.path, file.modified_ms, file.size_bytes, None, None) for file in files)
    )
