"""Cut files into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.core.files import FileEntry


def next_batch(
    files: Sequence[FileEntry], start: int, *, max_files: int | None, max_bytes: int | None
) -> int:
    """Give the index behind the last file of the batch that begins at ``start``.

    The first file is always taken, also one that is larger than ``max_bytes`` on its own: it would
    never be ingested otherwise.

    :param files: Files in the order of ingestion.
    :param max_files: Files in a batch at the most; None is no limit.
    :param max_bytes: Sum of ``size_bytes`` at the most; None is no limit.
    """
    stop = len(files) if max_files is None else min(len(files), start + max_files)
    if max_bytes is None:
        return stop
    total = 0
    for index in range(start, stop):
        total += files[index].size_bytes
        if total > max_bytes and index > start:
            return index
    return stop
