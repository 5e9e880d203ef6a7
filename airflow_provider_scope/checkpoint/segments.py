"""``seen/``: the loaded files in sorted segments, so that a run need not read the whole log.

Derived from the log, like ``sources/``: a segment that is missing or damaged costs time and nothing else,
until ``airflow scope vacuum`` purges the entries behind it.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_scope.checkpoint.seen import AT_ONCE, SCHEMA, newest_of_each, whole
from airflow_provider_scope.core import segments
from airflow_provider_scope.core.segments import Segment
from airflow_provider_scope.exceptions import StorageError
from airflow_provider_scope.storage.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.storage.protocol import Storage

logger = logging.getLogger(__name__)

LOOKS = 4
"""Times that the folder is listed when a segment is gone: another run has merged it meanwhile."""

_DAMAGED = (pa.ArrowException, KeyError, ValueError, OSError)
_EPOCH = b"airflow_provider_scope.epoch"


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
        self._damaged: dict[str, Exception] = {}

    def read(self, epoch: str, start: int) -> tuple[list[pq.ParquetFile], int]:
        """Read the segments of an epoch.

        :param start: The first entry of the epoch.
        :return: Their files, and the first entry that no segment holds.
        """
        tables: list[pq.ParquetFile] = []
        for _ in range(LOOKS):
            for segment in self._chain(epoch, start)[0]:
                table = self._file(epoch, segment)
                if table is None:
                    break
                tables.append(table)
                start = segment.last + 1
            else:
                break
        return tables, start

    def chain(self, epoch: str, start: int) -> list[Segment]:
        """Give the segments that count; those that were found damaged do not.

        :param start: The first entry of the epoch.
        """
        return self._chain(epoch, start)[0]

    def no_answer(self) -> StorageError | None:
        """Give the error of a segment that may be sound, and that the storage did not give."""
        return next((err for err in self._damaged.values() if isinstance(err, StorageError)), None)

    def extend(
        self,
        epoch: str,
        start: int,
        last: int,
        rows_from: Callable[[int], pa.Table],
        *,
        anew_from: int | None = None,
    ) -> None:
        """Write what is missing up to an entry, together with segments that are small beside it.

        :param start: The first entry of the epoch.
        :param rows_from: Gives the files of the entries from a number up to ``last``, in order.
        :param anew_from: Write also what is there anew, from this entry on.
        """
        chain, there = self._chain(epoch, start)
        if anew_from is not None:
            chain = [segment for segment in chain if segment.first < anew_from]
        first = chain[-1].last + 1 if chain else start
        if first > last:
            return
        rows = rows_from(first)
        small = segments.to_merge(chain, rows.num_rows, self.fan_out) if anew_from is None else 0
        merged = chain[len(chain) - small :]
        tables = [whole(file) for segment in merged if (file := self._file(epoch, segment))]
        if len(tables) < len(merged):
            return  # another run has merged them, or one is damaged: the next run looks again
        rows = newest_of_each(pa.concat_tables([*tables, rows]))
        data = _encode(rows, epoch)
        new = Segment(merged[0].first if merged else first, last, rows.num_rows, _crc(data))
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

    def _folder(self, epoch: str) -> str:
        return f"{self.location}/seen/{epoch}"

    def _chain(self, epoch: str, start: int) -> tuple[list[Segment], list[Segment]]:
        there = segments.named(self.storage.names(self._folder(epoch)))
        return segments.chain([one for one in there if one.name not in self._damaged], start), there

    def _file(self, epoch: str, segment: Segment) -> pq.ParquetFile | None:
        """Read a segment; None if it is gone or damaged: all that it tells is in the log."""
        path = f"{self._folder(epoch)}/{segment.name}"
        try:
            data = self.storage.read(path)
            return None if data is None else _open(data, epoch, segment)
        except (StorageError, *_DAMAGED) as err:
            self._damaged[segment.name] = err
            logger.warning("The segment %s is not used, the log is read instead: %s", path, err)
            return None


def _encode(rows: pa.Table, epoch: str) -> bytes:
    sink = pa.BufferOutputStream()
    rows = rows.replace_schema_metadata({_EPOCH: epoch.encode()})
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
    found = ((schema.metadata or {}).get(_EPOCH), file.metadata.num_rows, schema.remove_metadata())
    if found != (epoch.encode(), segment.rows, SCHEMA):
        msg = f"it holds {found}"
        raise ValueError(msg)
    return file
