"""``seen/``: the loaded files in sorted segments, so that a run need not read the whole log.

Derived from the log, like ``sources/``: a segment that is missing or damaged costs time and nothing else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_scope.core import segments
from airflow_provider_scope.core.discovery import LISTED_AT_ONCE, is_returned, status
from airflow_provider_scope.core.history import History
from airflow_provider_scope.core.segments import Segment
from airflow_provider_scope.exceptions import StorageError
from airflow_provider_scope.storage.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from airflow_provider_scope.core.discovery import Seen, Status
    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.storage.protocol import Storage

logger = logging.getLogger(__name__)

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

LOOKS = 4
"""Times that the folder is listed when a segment is gone: another run has merged it meanwhile."""

AT_ONCE = 65_536
"""Rows that are read together."""

_DAMAGED = (pa.ArrowException, KeyError, ValueError, OSError)


class SeenFiles(History):
    """The files of some segments, and those of later entries.

    :param tables: Rows of ``SCHEMA``, each table sorted by path and without a path twice; later ones count.
    """

    def __init__(self, tables: Iterable[pa.Table] = ()) -> None:
        super().__init__()
        # In the parts that they were read in: to put these together would take the memory twice.
        self._tables = [_Sorted(part) for table in tables for part in table.to_batches(AT_ONCE) if part]

    def __bool__(self) -> bool:
        return super().__bool__() or bool(self._tables)

    def without_same(self, files: Sequence[FileEntry]) -> list[FileEntry]:
        """Compare columns, with no object for each file; of what is left, ``find`` tells."""
        left: list[FileEntry] = []
        for first in range(0, len(files), LISTED_AT_ONCE):
            part = files[first : first + LISTED_AT_ONCE]
            same = self._same(part)
            left += [file for file, is_same in zip(part, same, strict=True) if not is_same]
        return left

    def _same(self, files: Sequence[FileEntry]) -> list[bool]:
        found: dict[int, bool] = {}
        listed = pa.table(
            [
                [file.path for file in files],
                [file.modified_ms for file in files],
                [file.size_bytes for file in files],
                [file.content_md5 for file in files],
            ],
            schema=SCHEMA.remove(4),
        )
        for table in reversed(self._tables):
            at, rows = table.match(listed["path"].combine_chunks())
            now = listed.take(at)
            md5 = pc.fill_null(pc.equal(rows["content_md5"], now["content_md5"]), fill_value=True)
            same = pc.and_(pc.equal(rows["modified_ms"], now["modified_ms"]), md5)
            same = pc.and_(same, pc.equal(rows["size_bytes"], now["size_bytes"]))
            for index, is_same in zip(at.to_pylist(), same.to_pylist(), strict=True):
                found.setdefault(index, bool(is_same))
        return [
            self._files[file.path] == status(file)
            if file.path in self._files
            else found.get(index, False) and file.path not in self._removed
            for index, file in enumerate(files)
        ]

    def find(self, paths: Sequence[str]) -> Seen:
        """Look for all of them at once."""
        known: Seen = {}
        for table in self._tables:
            known.update(_statuses(table.match(pa.array(paths, pa.string()))[1]))
        for path in self._removed:
            known.pop(path, None)
        return known | super().find(paths)

    def outside(self, roots: tuple[str, ...]) -> Iterator[tuple[str, Status]]:
        """Pass over what lies below the folders, which is nearly all."""
        later: set[str] = {*self._files, *self._removed, *roots}
        for number, table in enumerate(self._tables):
            for rows in table.outside(tuple(root.rstrip("/") for root in roots)):
                newer = [other.paths_in(rows["path"]) for other in self._tables[number + 1 :]]
                for path, before in _statuses(rows):
                    if path not in later and not any(path in paths for paths in newer):
                        yield path, before
        yield from super().outside(roots)


class _Sorted:
    """Some rows, sorted by path."""

    def __init__(self, part: pa.RecordBatch) -> None:
        self.table = pa.Table.from_batches([part])
        self.count = part.num_rows
        self.paths = part["path"]

    def match(self, paths: pa.Array) -> tuple[pa.Array, pa.Table]:
        """Give the rows with one of the paths, and for each its index in ``paths``.

        Only the part between the least and the greatest is looked at: listings come nearly in order.
        """
        ends = pc.min_max(paths).as_py()
        if ends["min"] is None:
            return pa.array([], pa.int32()), self.table.slice(0, 0)
        first = self._position(ends["min"])
        part = self.table.slice(first, self._position(f"{ends['max']}\0") - first)
        at = pc.index_in(part["path"], value_set=paths)
        is_there = pc.is_valid(at)
        return at.filter(is_there).combine_chunks(), part.filter(is_there)

    def paths_in(self, paths: pa.ChunkedArray) -> set[str]:
        """Give those of some paths that it has."""
        return set(self.match(paths.combine_chunks())[1]["path"].to_pylist())

    def _position(self, path: str) -> int:
        """Give the first row whose path is not before ``path``, by bytes: so Arrow sorts."""
        wanted = path.encode()
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.paths[middle].as_buffer().to_pybytes() < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def outside(self, roots: tuple[str, ...]) -> Iterator[pa.Table]:
        """Give the rows whose path lies below none of the roots, in parts."""
        # "0" is the character after "/".
        within = sorted((self._position(f"{root}/"), self._position(f"{root}0")) for root in roots)
        start = 0
        for first, end in [*within, (self.count, self.count)]:
            for at in range(start, first, AT_ONCE):
                yield self.table.slice(at, min(AT_ONCE, first - at))
            start = max(start, end)


class Segments:
    """The segments of one checkpoint.

    :param storage: The storage of ``location``.
    :param location: Canonical URI of the checkpoint folder.
    :param fan_out: A segment this many times as large as what comes is not merged with it.
    """

    def __init__(self, storage: Storage, location: str, fan_out: int) -> None:
        self.storage = storage
        self.location = location
        self.fan_out = fan_out
        self._damaged: set[str] = set()

    def read(self, epoch: str, start: int) -> tuple[list[pa.Table], int]:
        """Read the segments of an epoch.

        :param start: The first entry of the epoch.
        :return: Their rows, and the first entry that no segment holds.
        """
        tables: list[pa.Table] = []
        for _ in range(LOOKS):
            for segment in self._chain(epoch, start)[0]:
                table = self._table(epoch, segment)
                if table is None:
                    break
                tables.append(table)
                start = segment.last + 1
            else:
                break
        return tables, start

    def extend(self, epoch: str, start: int, last: int, rows_from: Callable[[int], pa.Table]) -> None:
        """Write what is missing up to an entry, together with segments that are small beside it.

        :param start: The first entry of the epoch.
        :param rows_from: Gives the files of the entries from a number up to ``last``, in order.
        """
        chain, there = self._chain(epoch, start)
        first = chain[-1].last + 1 if chain else start
        if first > last:
            return
        rows = rows_from(first)
        merged = chain[len(chain) - segments.to_merge(chain, rows.num_rows, self.fan_out) :]
        tables = [table for segment in merged if (table := self._table(epoch, segment)) is not None]
        if len(tables) < len(merged):
            return  # another run has merged them, or one is damaged: the next run looks again
        whole = newest_of_each(pa.concat_tables([*tables, rows]))
        new = Segment(merged[0].first if merged else first, last, whole.num_rows)
        data = _encode(whole, epoch)
        if len(data) > CONTROL_FILE_LIMIT_BYTES:
            logger.warning(
                "The loaded files of batches %d to %d are too many for one segment (%d bytes): runs read "
                "these entries of the log.", new.first, new.last, len(data),
            )  # fmt: skip
            return
        folder = self._folder(epoch)
        self.storage.replace(f"{folder}/{new.name}", data)
        for old in there:
            if old != new and new.first <= old.first and old.last <= new.last:
                self.storage.delete(f"{folder}/{old.name}")

    def delete(self, epoch: str) -> None:
        """Delete the segments of an epoch, to make them anew."""
        for segment in self._chain(epoch, 0)[1]:
            self.storage.delete(f"{self._folder(epoch)}/{segment.name}")

    def _folder(self, epoch: str) -> str:
        return f"{self.location}/seen/{epoch}"

    def _chain(self, epoch: str, start: int) -> tuple[list[Segment], list[Segment]]:
        there = segments.named(self.storage.names(self._folder(epoch)))
        return segments.chain([one for one in there if one.name not in self._damaged], start), there

    def _table(self, epoch: str, segment: Segment) -> pa.Table | None:
        """Read a segment; None if it is gone or damaged: all that it tells is in the log."""
        path = f"{self._folder(epoch)}/{segment.name}"
        try:
            data = self.storage.read(path)
            return None if data is None else _decode(data, epoch, segment)
        except (StorageError, *_DAMAGED) as err:
            self._damaged.add(segment.name)
            logger.warning("The segment %s is not used, the log is read instead: %s", path, err)
            return None


def rows_of(files: Iterable[Row]) -> pa.Table:
    """Give a table of files."""
    columns = list(zip(*files, strict=True)) or [()] * len(SCHEMA)
    return pa.table([pa.array(c, kind) for c, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def without_returned(rows: pa.Table, returned: Mapping[str, int]) -> pa.Table:
    """Leave out the files that were given back from the quarantine since.

    :param returned: Files that were given back, and the newest entry at that time.
    """
    if not returned:
        return rows
    paths, numbers = rows["path"].to_pylist(), rows["seq"].to_pylist()
    keep = [not is_returned(path, seq, returned) for path, seq in zip(paths, numbers, strict=True)]
    return rows.filter(pa.array(keep, pa.bool_()))


def newest_of_each(rows: pa.Table) -> pa.Table:
    """Sort by path; of a file that was loaded again, the newest row counts."""
    order = pa.table({"path": rows["path"], "seq": pc.fill_null(rows["seq"], -1)})
    keys = [("path", "ascending"), ("seq", "ascending")]
    whole = rows.take(pc.sort_indices(order, keys)).combine_chunks()
    if not whole.num_rows:
        return whole
    paths = whole["path"].chunk(0)
    is_last = pc.not_equal(paths.slice(0, len(paths) - 1), paths.slice(1))
    return whole.filter(pa.concat_arrays([is_last, pa.array([True])]))


_EPOCH = b"airflow_provider_scope.epoch"


def _encode(rows: pa.Table, epoch: str) -> bytes:
    sink = pa.BufferOutputStream()
    rows = rows.replace_schema_metadata({_EPOCH: epoch.encode()})
    pq.write_table(rows, sink, compression="zstd", row_group_size=AT_ONCE, write_page_checksum=True)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _decode(data: bytes, epoch: str, segment: Segment) -> pa.Table:
    """Read a segment.

    :raises ValueError: It is not what its name says.
    """
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    parts = file.iter_batches(AT_ONCE, use_threads=False)
    rows = pa.Table.from_batches([*parts], schema=file.schema_arrow)
    found = ((rows.schema.metadata or {}).get(_EPOCH), rows.num_rows, rows.schema.remove_metadata())
    if found != (epoch.encode(), segment.rows, SCHEMA):
        msg = f"it holds {found}"
        raise ValueError(msg)
    return rows.replace_schema_metadata(None)


def _statuses(rows: pa.Table) -> Iterator[tuple[str, Status]]:
    columns = [rows[name].to_pylist() for name in ("path", "modified_ms", "size_bytes", "content_md5")]
    return ((path, (at, size, md5)) for path, at, size, md5 in zip(*columns, strict=True))
