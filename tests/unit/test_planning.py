"""Where a batch ends."""

from __future__ import annotations

import pytest

from airflow_provider_scope.sources.files.discovery import next_batch
from tests.support.values import a_file


@pytest.mark.parametrize(
    ("sizes", "start", "max_files", "max_bytes", "stop"),
    [
        pytest.param([], 0, 5, 100, 0, id="no files, no batch"),
        pytest.param([1, 1, 1], 0, None, None, 3, id="no limit takes all"),
        pytest.param([1, 1, 1], 0, 2, None, 2, id="files"),
        pytest.param([1, 1, 1], 0, 3, None, 3, id="exactly as many files"),
        pytest.param([1, 1, 1], 2, 2, None, 3, id="the last batch is smaller"),
        pytest.param([1, 1, 1], 3, 2, 1, 3, id="behind the last file"),
        pytest.param([40, 40, 40], 0, None, 100, 2, id="bytes"),
        pytest.param([40, 60, 1], 0, None, 100, 2, id="exactly as many bytes"),
        pytest.param([500, 1], 0, None, 100, 1, id="a large first file is a batch of its own"),
        pytest.param([500, 1], 0, 1, 100, 1, id="a large first file with both limits"),
        pytest.param([1, 500, 1], 0, None, 100, 1, id="a large second file waits"),
        pytest.param([1, 500, 1], 1, None, 100, 2, id="and is taken when it is first"),
        pytest.param([0, 0, 0], 0, None, 1, 3, id="files without bytes count for files only"),
        pytest.param([10, 10, 10, 10], 0, 3, 25, 2, id="both limits, bytes first"),
        pytest.param([10, 10, 10, 10], 0, 2, 35, 2, id="both limits, files first"),
        pytest.param([9, 10, 10, 10], 1, 2, 100, 3, id="the limit of files counts from the start"),
    ],
)
def test_a_batch_ends_where_the_first_limit_is_reached(
    sizes: list[int], start: int, max_files: int | None, max_bytes: int | None, stop: int
) -> None:
    files = [a_file(f"{number}.csv", size_bytes=size) for number, size in enumerate(sizes)]

    assert next_batch(files, start, max_files=max_files, max_bytes=max_bytes) == stop
