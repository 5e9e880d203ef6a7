"""The files that are derived from the log: ``watermark.json``, ``sources/`` and ``seen/``.

``seen/`` holds the loaded files as columns, sorted by path, in segments. A derived file that is missing or
damaged costs time, and nothing else until ``airflow scope vacuum`` purges the entries behind it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import zlib
from array import array
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_scope.exceptions import CheckpointGapError, RecordsVacuumedError, StorageError
from airflow_provider_scope.protocol import retention, takeover
from airflow_provider_scope.protocol.retention import MERGED_AT_MOST, Segment
from airflow_provider_scope.protocol.seen import LISTED_AT_ONCE, History, in_parts, status
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.seen import Seen, Status
    from airflow_provider_scope.protocol.takeover import Takeover
    from airflow_provider_scope.values import FileEntry

logger = logging.getLogger(__name__)

# ---- the loaded files, and their segments ----

SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("modified_ms", pa.int64()),
        ("size_bytes", pa.int64()),
        ("content_md5", pa.string()),
        ("seq", pa.int64()),
    ]
)
"""``path`` as the entries spell it; ``seq`` is null for a file that dbt-scope loaded."""

Row = tuple[str, int, int | None, str | None, int | None]
"""A row of ``SCHEMA``."""

AT_ONCE = 65_536
"""Rows that are read together."""


class SeenFiles(History):
    """The files of some segments, and those of later entries.

    :param tables: Rows of ``SCHEMA``, each table sorted by path and without a path twice; later ones count.
        Of a file only those parts are decoded that what is looked for may be in.
    """

    def __init__(self, tables: Iterable[pa.Table | pq.ParquetFile] = ()) -> None:
        super().__init__()
        # In the parts that they were read in: to put these together would take the memory twice.
        self._tables = [part for table in tables for part in _parts(table)]

    def __bool__(self) -> bool:
        return super().__bool__() or bool(self._tables)

    def without_same(self, files: Sequence[FileEntry]) -> list[FileEntry]:
        """Compare columns, with no object for each file; of what is left, ``find`` tells."""
        remaining: list[FileEntry] = []
        for part in in_parts(files, LISTED_AT_ONCE):
            remaining += [file for file, is_same in zip(part, self._same(part), strict=True) if not is_same]
        return remaining

    def _same(self, files: Sequence[FileEntry]) -> list[bool]:
        is_same_by_index: dict[int, bool] = {}
        listed = rows_of((f.path, f.modified_ms, f.size_bytes, f.content_md5, None) for f in files)
        for indices, rows in _matches(reversed(self._tables), listed["path"].chunk(0)):
            listed_rows = listed.take(indices)
            size = pc.and_kleene(
                pc.is_valid(rows["size_bytes"]), pc.equal(rows["size_bytes"], listed_rows["size_bytes"])
            )
            equal = pc.and_(pc.equal(rows["modified_ms"], listed_rows["modified_ms"]), size)
            # Null where all else is the same and one of the sums is not known.
            equal = pc.and_kleene(equal, pc.equal(rows["content_md5"], listed_rows["content_md5"]))
            for index, is_same in zip(indices.to_pylist(), equal.to_pylist(), strict=True):
                is_same_by_index.setdefault(index, is_same is not False)
        return [
            self._files[file.path] == status(file)
            if file.path in self._files
            else is_same_by_index.get(index, False) and file.path not in self._removed
            for index, file in enumerate(files)
        ]

    def find(self, paths: Sequence[str]) -> Seen:
        statuses: Seen = {}
        for part in in_parts(paths, LISTED_AT_ONCE):
            for _, rows in _matches(self._tables, _column(part, pa.string())):
                statuses.update(_statuses(rows))
        for path in self._removed:
            statuses.pop(path, None)
        return statuses | super().find(paths)

    def outside(self, roots: tuple[str, ...]) -> Iterator[tuple[str, Status]]:
        """Pass over what lies below the folders, which is nearly all."""
        later: set[str] = {*self._files, *self._removed, *roots}
        for number, table in enumerate(self._tables):
            for rows in table.outside(tuple(root.rstrip("/") for root in roots)):
                newer = _matches(self._tables[number + 1 :], rows["path"])
                replaced = {path for _, newer_rows in newer for path in newer_rows["path"].to_pylist()}
                for path, before in _statuses(rows):
                    if path not in later and path not in replaced:
                        yield path, before
        yield from super().outside(roots)


class _Sorted:
    """Some rows, sorted by path, that are decoded when they are first looked at.

    :param least: The first path, and ``greatest`` the last one.
    """

    def __init__(self, decode: Callable[[], pa.RecordBatch], least: str, greatest: str) -> None:
        self._decode = decode
        self.least = least
        self.greatest = greatest

    @cached_property
    def rows(self) -> pa.RecordBatch:
        return self._decode()

    def match(self, paths: pa.Array, least: str, greatest: str) -> tuple[pa.Array, pa.RecordBatch]:
        """Find the rows with one of the paths, and for each its index in ``paths``.

        Only the part between the least and the greatest is looked at: listings come nearly in order.
        """
        first = self._position(least)
        part = self.rows.slice(first, self._position(f"{greatest}\0") - first)
        indices = pc.index_in(part["path"], value_set=paths)
        is_present = pc.is_valid(indices)
        return indices.filter(is_present), part.filter(is_present)

    def _position(self, path: str) -> int:
        """Find the first row whose path is not before ``path``, by bytes: so Arrow sorts."""
        target = path.encode()
        paths = self.rows["path"]
        low, high = 0, len(paths)
        while low < high:
            middle = (low + high) // 2
            if paths[middle].as_buffer().to_pybytes() < target:
                low = middle + 1
            else:
                high = middle
        return low

    def outside(self, roots: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Read the rows whose path lies below none of the roots, in parts."""
        # "0" is the character after "/".
        if any(f"{root}/" <= self.least and self.greatest < f"{root}0" for root in roots):
            return
        within = sorted((self._position(f"{root}/"), self._position(f"{root}0")) for root in roots)
        start = 0
        count = self.rows.num_rows
        for first, end in [*within, (count, count)]:
            for at in range(start, first, AT_ONCE):
                yield self.rows.slice(at, min(AT_ONCE, first - at))
            start = max(start, end)


def _matches(tables: Iterable[_Sorted], paths: pa.Array) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """Match some paths with those tables that may have one of them."""
    ends = pc.min_max(paths).as_py()
    if ends["min"] is not None:
        for table in tables:
            if table.least <= ends["max"] and ends["min"] <= table.greatest:
                yield table.match(paths, ends["min"], ends["max"])


def rows_of(files: Iterable[Row]) -> pa.Table:
    columns = list(zip(*files, strict=True)) or [()] * len(SCHEMA)
    return pa.table([_column(c, kind) for c, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make an array of texts or whole numbers as Arrow keeps them.

    ``pa.array`` and ``pa.scalar`` import pandas first, if it is there: half a second of a run, and 45 MiB.
    """
    flags = pa.py_buffer(bytes(value is not None for value in values))
    is_valid = pa.Array.from_buffers(pa.uint8(), len(values), [None, flags]).cast(pa.bool_())
    if kind == pa.string():
        texts = [(value or "").encode() for value in values]
        buffers = [array("i", accumulate(map(len, texts), initial=0)), b"".join(texts)]
    else:
        buffers = [array("q", (value or 0 for value in values))]
    return pa.Array.from_buffers(kind, len(values), [is_valid.buffers()[1], *map(pa.py_buffer, buffers)])


def newest_of_each(rows: pa.Table) -> pa.Table:
    """Sort by path; of a file that was loaded again, the newest row counts."""
    order = pa.table({"path": rows["path"], "seq": pc.fill_null(rows["seq"], _column([-1], pa.int64())[0])})
    keys = [("path", "ascending"), ("seq", "ascending")]
    in_order = rows.take(pc.sort_indices(order, keys)).combine_chunks()
    if not in_order.num_rows:
        return in_order
    paths = in_order["path"].chunk(0)
    is_last = pc.not_equal(paths.slice(0, len(paths) - 1), paths.slice(1))
    return in_order.filter(pa.concat_arrays([is_last, pc.is_valid(paths.slice(len(paths) - 1))]))


def _read_all(file: pq.ParquetFile) -> pa.Table:
    parts = file.iter_batches(AT_ONCE, use_threads=False)
    return pa.Table.from_batches((part.replace_schema_metadata(None) for part in parts), schema=SCHEMA)


def _parts(table: pa.Table | pq.ParquetFile) -> Iterator[_Sorted]:
    if isinstance(table, pa.Table):
        yield from map(_decoded, filter(len, table.to_batches(AT_ONCE)))
        return
    for number in range(table.num_row_groups):
        group = table.metadata.row_group(number)
        paths = group.column(0).statistics

        def decode(number: int = number) -> pa.RecordBatch:
            (rows,) = table.iter_batches(AT_ONCE, [number], use_threads=False)
            return rows.replace_schema_metadata(None)

        if paths is not None and paths.has_min_max:
            yield _Sorted(decode, paths.min, paths.max)
        elif group.num_rows:
            yield _decoded(decode())  # Arrow notes no paths of more than 4 KiB


def _decoded(rows: pa.RecordBatch) -> _Sorted:
    return _Sorted(lambda: rows, rows["path"][0].as_py(), rows["path"][-1].as_py())


def _statuses(rows: pa.RecordBatch) -> Iterator[tuple[str, Status]]:
    columns = [rows[name].to_pylist() for name in ("path", "modified_ms", "size_bytes", "content_md5")]
    return ((path, (at, size, md5)) for path, at, size, md5 in zip(*columns, strict=True))


LISTINGS_AT_MOST = 4
"""Times that the folder is listed when a segment is missing: another run has merged it meanwhile."""

_DAMAGED = (pa.ArrowException, KeyError, ValueError, OSError)
_EPOCH = b"airflow_provider_scope.epoch"


class Segments:
    """The segments of one checkpoint.

    :param log: The log that they are derived from.
    :param fan_out: A segment this many times as large as what comes is not merged with it.
    """

    def __init__(self, log: CheckpointLog, fan_out: int) -> None:
        self.log = log
        self.fan_out = fan_out
        self._damaged: dict[str, Exception] = {}

    def read(self, epoch: Epoch) -> tuple[dict[Segment, pq.ParquetFile], int]:
        """Read the segments of an epoch that count.

        :return: The segments in order, each with its file, and the first entry that none of them holds.
        """
        files: dict[Segment, pq.ParquetFile] = {}
        start = epoch.start
        for _ in range(LISTINGS_AT_MOST):
            for segment in self._chain(self._stored(epoch), start):
                file = self._file(epoch, segment)
                if file is None:
                    break
                files[segment] = file
                start = segment.last + 1
            else:
                break
        return files, start

    def not_whole(self, epoch: Epoch, unread: int) -> StorageError | CheckpointGapError:
        """Return the error for segments that do not hold the files of all purged entries.

        :param unread: The first entry that no segment holds.
        """
        below = self.log.first
        return self._no_answer() or CheckpointGapError(
            f"A segment in {self._folder(epoch)} is missing or damaged: it is not known which files "
            f"the batches {unread} to {below - 1} loaded, because `airflow scope vacuum` purged the entries.",
            kept="the table and all records; nothing was written",
            do=f"restore the segments that begin below {below} from a copy of the checkpoint; "
            f"or {takeover.REFRESH}",
        )

    def _no_answer(self) -> StorageError | None:
        """Find the error of a segment that may be sound, which the storage could not read."""
        return next((err for err in self._damaged.values() if isinstance(err, StorageError)), None)

    def extend(
        self,
        epoch: Epoch,
        last: int,
        rows_from: Callable[[int], pa.Table],
        *,
        anew_from: int | None = None,
    ) -> None:
        """Write what is missing up to an entry, together with segments that are small beside it.

        :param rows_from: Gives the files of the entries from a number up to ``last``, in order.
        :param anew_from: Write the segments that begin at this entry or later again, too.
        :raises StorageError: A segment could not be read just now.
        """
        existing = self._stored(epoch)
        chain = self._chain(existing, epoch.start)
        if anew_from is not None:
            chain = [segment for segment in chain if segment.first < anew_from]
        first = chain[-1].last + 1 if chain else epoch.start
        if first > last:
            return
        rows = rows_from(first)
        small = retention.to_merge(chain, rows.num_rows, self.fan_out) if anew_from is None else 0
        merged = chain[len(chain) - small :]
        tables = [_read_all(file) for segment in merged if (file := self._file(epoch, segment))]
        if len(tables) < len(merged):
            if no_answer := self._no_answer():
                raise no_answer  # the watermark, which comes next, would say that nothing is missing here
            return  # another run has merged them, or one is damaged: the next run looks again
        rows = newest_of_each(pa.concat_tables([*tables, rows]))
        data = _encode(rows, epoch.folder)
        new = Segment(merged[0].first if merged else first, last, rows.num_rows, _crc(data))
        if len(data) > CONTROL_FILE_LIMIT_BYTES:
            logger.warning(
                "The loaded files of batches %d to %d are too many for one segment (%d bytes): runs read "
                "these entries of the log.", new.first, new.last, len(data),
            )  # fmt: skip
            return
        folder = self._folder(epoch)
        self.log.storage.replace(f"{folder}/{new.name}", data)
        for old in existing:
            if old != new and new.first <= old.first and old.last <= new.last:
                self.log.storage.delete(f"{folder}/{old.name}")

    def _folder(self, epoch: Epoch) -> str:
        return f"{self.log.location}/seen/{epoch.folder}"

    def _stored(self, epoch: Epoch) -> list[Segment]:
        return retention.named(self.log.storage.names(self._folder(epoch)))

    def _chain(self, segments: Iterable[Segment], start: int) -> list[Segment]:
        """Find the segments that count; those that were found damaged do not."""
        return retention.chain((s for s in segments if s.name not in self._damaged), start)

    def _file(self, epoch: Epoch, segment: Segment) -> pq.ParquetFile | None:
        """Read a segment; None if it is gone or damaged: all that it tells is in the log."""
        path = f"{self._folder(epoch)}/{segment.name}"
        try:
            data = self.log.storage.read(path)
            return None if data is None else _open(data, epoch.folder, segment)
        except (StorageError, *_DAMAGED) as err:
            self._damaged[segment.name] = err
            logger.warning("The segment %s is not used, the log is read instead: %s", path, err)
            return None


def _encode(rows: pa.Table, epoch: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    rows = rows.replace_schema_metadata({_EPOCH: epoch.encode()} if epoch else None)
    # Hardly a path comes twice: a dictionary of them would be written and read for nothing.
    pq.write_table(rows, sink, compression="zstd", row_group_size=AT_ONCE, use_dictionary=False)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def _open(data: bytes, epoch: str, segment: Segment) -> pq.ParquetFile:
    """Open a segment.

    :raises ValueError: It is not what its name says.
    """
    if _crc(data) != segment.crc:
        msg = f"its CRC-32 is {_crc(data)}"
        raise ValueError(msg)
    file = pq.ParquetFile(pa.BufferReader(data))
    schema = file.schema_arrow
    content = ((schema.metadata or {}).get(_EPOCH), file.metadata.num_rows, schema.remove_metadata())
    if content != (epoch.encode(), segment.rows, SCHEMA):
        msg = f"it holds {content}"
        raise ValueError(msg)
    return file


def loaded_files(log: CheckpointLog, epoch: Epoch, end: int) -> list[pa.Table]:
    """Read the files that the batches of an epoch loaded: tables sorted by path, of which later ones count.

    :param end: The first entry that is left out; all before it are committed.
    :raises CheckpointGapError: The segments do not hold those of all purged entries.
    :raises StorageError: Something could not be read just now.
    """
    segments = Segments(log, 1)
    files, unread = segments.read(epoch)
    if unread < log.vacuumed_below():
        raise segments.not_whole(epoch, unread)
    tables = [*map(_read_all, files.values())]
    rows = [rows_of(_rows((log.offset(seq), log.commit(seq)))) for seq in range(unread, end)]
    return [*tables, newest_of_each(pa.concat_tables(rows))] if rows else tables


# ---- the files that dbt-scope had loaded ----


def put_taken_files(log: CheckpointLog, files: pa.Table) -> tuple[str, ...]:
    """Create the lists that a takeover names by their digests, and give the digests.

    :param files: Rows of ``SCHEMA``, sorted by path.
    """
    lists = [_encode(files.slice(first, MERGED_AT_MOST)) for first in range(0, len(files), MERGED_AT_MOST)]
    return tuple(map(log.put_taken_list, lists))


def taken_files(log: CheckpointLog, taken: Takeover | None) -> list[pq.ParquetFile]:
    """Read the files that dbt-scope had loaded; none if nothing was taken over.

    :raises CheckpointCorruptError: A list was changed after it was written.
    """
    return [pq.ParquetFile(pa.BufferReader(log.taken_list(name))) for name in (taken.lists if taken else ())]


# ---- what a run writes beside its log ----


class AuditFiles:
    """The derived files of a pipeline.

    :param log: The pipeline's log.
    :param compaction_interval: A segment of ``seen/`` this many times as large as what comes is left alone.
    :param retention_files: Files kept in ``sources/``: those of the newest batches.
    """

    def __init__(self, log: CheckpointLog, *, compaction_interval: int, retention_files: int) -> None:
        self.log = log
        self.folder = f"{log.location}/sources"
        self.retention_files = retention_files
        self.segments = Segments(log, compaction_interval)

    def seen_files(self, epoch: Epoch) -> tuple[History, int]:
        """Read which files were taken over from dbt-scope, or are in the segments of an epoch.

        :return: The files, and the first entry that has to be read for the rest.
        """
        files, first_unread = self.segments.read(epoch)
        return SeenFiles([*taken_files(self.log, epoch.taken), *files.values()]), first_unread

    def bring_up_to_date(
        self, last: OffsetEntry, newest: Takeover | None = None, *, everything: bool = False
    ) -> bool:
        """Write what is missing for the batches up to ``last``, the newest that is committed.

        The watermark comes last: one that is right says that everything else is.

        :param newest: The newest takeover.
        :param everything: Write all diffs of the refresh again, whatever is there.
        :return: False if nothing had to be written.
        :raises WatermarkChangedError: dbt-scope has written the watermark since it was ours.
        """
        epoch = Epoch.of(last, newest)
        expected_watermark = takeover.watermark(last, epoch.batch_id(last.seq))
        stored_watermark = self.log.watermark()
        if stored_watermark == expected_watermark and not everything:
            return False
        if takeover.is_dbt_scopes(stored_watermark) or not everything:
            takeover.check_watermark(stored_watermark, newest, last, self.log.location)
        covered = None if everything else takeover.covered(stored_watermark)
        if covered and covered[0] > last.seq:
            return False  # another run is further on, and has written this already
        first = covered[0] + 1 if covered and covered[1] == last.refresh_start else epoch.start
        batch = functools.lru_cache(self.retention_files)(self._batch)
        # Those that retention would delete at once are not written.
        for seq in range(max(first, last.seq + 1 - self.retention_files), last.seq + 1):
            with contextlib.suppress(RecordsVacuumedError):
                self._write_diff(*batch(seq), epoch)

        def rows_from(first_entry: int) -> pa.Table:
            # Each batch by itself: a column of texts holds 2 GiB at the most.
            rows = [rows_of(_rows(batch(seq))) for seq in range(first_entry, last.seq + 1)]
            if first_entry < self.log.vacuumed_below():
                raise RecordsVacuumedError(
                    f"Entries of {self.log.location} from {first_entry} on are purged, and no segment has "
                    "them."
                )
            return pa.concat_tables(rows)

        anew_from = self.log.vacuumed_below() if everything else None
        try:
            self.segments.extend(epoch, last.seq, rows_from, anew_from=anew_from)
        except RecordsVacuumedError as err:
            logger.warning("seen/ was not written: %s", err.what)
        names = self.log.storage.names(self.folder)
        newest_id = epoch.batch_id(last.seq)
        for name in takeover.expired(names, newest_id, self.retention_files, epoch.first_batch_id):
            self.log.storage.delete(f"{self.folder}/{name}")
        self.log.storage.replace(f"{self.log.location}/watermark.json", expected_watermark)
        return True

    def _batch(self, seq: int) -> tuple[OffsetEntry, CommitRecord]:
        return self.log.offset(seq), self.log.commit(seq)

    def _write_diff(self, entry: OffsetEntry, commit: CommitRecord, epoch: Epoch) -> None:
        batch_id = epoch.batch_id(entry.seq)
        rows = takeover.audit_rows(entry, commit, batch_id)
        path = f"{self.folder}/{batch_id}"
        if rows:
            self.log.storage.replace(path, takeover.audit_lines(rows))
        else:
            self.log.storage.delete(path)  # an earlier refresh may have had a batch of this number


def _rows(batch: tuple[OffsetEntry, CommitRecord]) -> Iterator[Row]:
    entry, commit = batch
    for file in () if commit.abandoned else entry.slice.audited:
        yield file.path, file.modified_ms, file.size_bytes, file.content_md5, entry.seq
