"""Batches cover all files, each once, in order and within the limits."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.sources.files.discovery import next_batch
from airflow_provider_scope.values import FileEntry

SIZES = st.lists(st.integers(0, 20), max_size=40)
LIMIT = st.none() | st.integers(1, 50)


@given(SIZES, LIMIT, LIMIT)
def test_batches_cover_all_files_once_within_the_limits_and_are_as_large_as_they_may_be(
    sizes: list[int], max_files: int | None, max_bytes: int | None
) -> None:
    files = [FileEntry(1, f"file:///in/{number}", size) for number, size in enumerate(sizes)]
    batches: list[list[FileEntry]] = []
    start = 0
    while (stop := next_batch(files, start, max_files=max_files, max_bytes=max_bytes)) != start:
        batches.append(files[start:stop])
        start = stop

    assert [file for batch in batches for file in batch] == files

    def fits(batch: list[FileEntry]) -> bool:
        few = max_files is None or len(batch) <= max_files
        small = max_bytes is None or sum(file.size_bytes for file in batch) <= max_bytes
        return few and (small or len(batch) == 1)

    assert all(fits(batch) for batch in batches)
    assert not any(fits([*batch, after[0]]) for batch, after in pairwise(batches))
