"""``seen/``: what segments tell is compared with a plain dict, whatever the order, names and merges."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.protocol import derived, retention
from airflow_provider_scope.protocol.derived import SeenFiles, Segments, rows_of
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.retention import Segment, chain, to_merge
from airflow_provider_scope.protocol.seen import is_changed, status
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.values import FileEntry
from tests.support.memory_engine import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

EPOCH = Epoch()
NAMES = st.text("ab/.0 -\u00e9\u4e2d\U0001f600", min_size=1, max_size=6)
FILES = st.builds(
    lambda name, at, size, md5: FileEntry(at, f"file:///r/{name}", size, content_md5=md5),
    NAMES, st.integers(1, 3), st.integers(0, 2), st.sampled_from([None, "x", "y"]),
)  # fmt: skip
BATCHES = st.lists(st.lists(FILES, max_size=8), max_size=8)


def rows(batch: Sequence[FileEntry], seq: int) -> pa.Table:
    once = {file.path: file for file in batch}.values()
    return rows_of((f.path, f.modified_ms, f.size_bytes, f.content_md5, seq) for f in once)


def stored(batches: Sequence[Sequence[FileEntry]], fan_out: int, steps: Sequence[int]) -> Segments:
    """Let runs add the batches, some at once."""
    kept = Segments(CheckpointLog(MemoryStorage(), "file:///c"), fan_out)

    def rows_from(first: int) -> pa.Table:
        return pa.concat_tables(rows(batches[seq], seq) for seq in range(first, last + 1))

    last = -1
    for step in [*steps, len(batches)]:
        last = min(last + step, len(batches) - 1)
        if last >= 0:
            kept.extend(EPOCH, last, rows_from)
    return kept


@given(
    BATCHES,
    st.lists(FILES, max_size=12, unique_by=lambda file: file.path),
    st.integers(1, 12),
    st.lists(st.integers(1, 3), max_size=6),
)
def test_segments_tell_what_a_dict_tells(batches, listed, fan_out, steps):
    expected: dict[str, Any] = {}
    for batch in batches:
        expected.update((file.path, status(file)) for file in batch)

    segments, read_to = stored(batches, fan_out, steps).read(EPOCH)
    seen_files = SeenFiles(segments.values())

    assert read_to == len(batches)
    paths = [file.path for file in listed] + list(expected)
    assert seen_files.find(paths) == {path: expected[path] for path in paths if path in expected}
    unseen = seen_files.without_same(listed)
    for file in listed:
        before = expected.get(file.path)
        if file not in unseen:
            assert before is not None
            assert not is_changed(file, before)
        else:
            assert before != status(file)


@given(BATCHES, st.lists(st.sampled_from(["file:///r/a", "file:///r/a/b", "file:///r/b", "file:///r/"])))
def test_files_outside_of_the_roots(batches, roots):
    everything = {file.path: status(file) for batch in batches for file in batch}
    segments, _ = stored(batches, 3, []).read(EPOCH)
    starts = tuple(f"{root.rstrip('/')}/" for root in roots)

    seen_files = dict(SeenFiles(segments.values()).outside(roots))

    assert seen_files == {
        path: at for path, at in everything.items() if not path.startswith(starts) and path not in roots
    }


def test_a_file_of_this_run_counts_more_than_what_a_segment_says():
    before, now = FileEntry(1, "file:///r/a", 1), FileEntry(2, "file:///r/a", 2)
    seen_files = SeenFiles([rows([before], 0)])

    assert seen_files.without_same([before]) == []
    seen_files.update([now])

    assert (seen_files.without_same([now]), seen_files.without_same([before])) == ([], [before])
    assert seen_files.find(["file:///r/a"]) == {"file:///r/a": (2, 2, None)}


@pytest.mark.parametrize("harm", ["cut", "other", "gone"])
def test_a_segment_that_is_damaged_or_gone_is_read_from_the_log(harm):
    batches = [[FileEntry(1, f"file:///r/{n}", 1)] for n in range(40)]
    kept = stored(batches, 2, [1] * 40)
    folder = f"file:///c/seen/{EPOCH.folder}"
    names = kept.log.storage.names(folder)
    assert len(names) > 1
    path = f"{folder}/{names[-1]}"
    data = kept.log.storage.read(path)
    match harm:
        case "cut":
            kept.log.storage.replace(path, data[: len(data) // 2])
        case "other":
            kept.log.storage.replace(path, kept.log.storage.read(f"{folder}/{names[0]}"))
        case "gone":
            kept.log.storage.delete(path)

    segments, read_to = kept.read(EPOCH)
    assert read_to == retention.named(names)[-1].first
    assert set(SeenFiles(segments.values()).find([f"file:///r/{n}" for n in range(40)])) == {
        f"file:///r/{n}" for n in range(read_to)
    }
    kept.extend(EPOCH, 39, lambda first: pa.concat_tables(rows(batches[n], n) for n in range(first, 40)))

    assert Segments(kept.log, 2).read(EPOCH)[1] == 40


def test_only_the_parts_that_a_listing_may_be_in_are_decoded(monkeypatch):
    """Of the paths that Arrow notes none for, because they are too long, all are."""
    monkeypatch.setattr(derived, "AT_ONCE", 50)
    monkeypatch.setattr(derived, "LISTED_AT_ONCE", 30)
    files = [FileEntry(1, f"file:///r/{n:04}{'x' * 5_000 * (n >= 150)}", n) for n in range(200)]
    segments, _ = stored([files], 10, []).read(EPOCH)
    seen_files = SeenFiles(segments.values())

    def decoded() -> list[bool]:
        return ["rows" in vars(part) or part.least > "file:///r/0149" for part in seen_files._tables]

    assert list(seen_files.outside(("file:///r",))) == []
    assert seen_files.without_same(files[60:90]) == []
    assert decoded() == [False, True, False, True]
    assert seen_files.without_same(files) == []
    everything = {file.path: status(file) for file in files}
    assert dict(seen_files.outside(())) == seen_files.find([*everything]) == everything


def test_a_changed_byte_is_noticed_or_changes_nothing():
    batch = [FileEntry(1_700_000_000_000 + n, f"file:///r/{n:04}", n) for n in range(300)]
    kept = stored([batch], 10, [])
    folder = f"file:///c/seen/{EPOCH.folder}"
    path = f"{folder}/{kept.log.storage.names(folder)[0]}"
    data = kept.log.storage.read(path)
    dice = random.Random(7)
    noticed = 0
    for _ in range(150):
        at = dice.randrange(len(data))
        changed = bytes([data[at] ^ 1 << dice.randrange(8)])
        kept.log.storage.replace(path, data[:at] + changed + data[at + 1 :])
        segments, read_to = Segments(kept.log, 10).read(EPOCH)
        noticed += read_to == 0
        assert read_to == 0 or dict(SeenFiles(segments.values()).outside(())) == {
            f.path: status(f) for f in batch
        }
    assert noticed > 75


def test_the_number_of_segments_and_what_is_written_again_grow_with_the_logarithm():
    rows_there: list[Segment] = []
    written, most = 0, 0
    for seq in range(20_000):
        merged = to_merge(rows_there, 1, 10)
        kept = rows_there[: len(rows_there) - merged]
        new = Segment(kept[-1].last + 1 if kept else 0, seq, 1 + sum(s.rows for s in rows_there[len(kept) :]))
        rows_there = [*kept, new]
        written += new.rows
        most = max(most, len(rows_there))
    assert chain(rows_there, 0) == rows_there
    assert most <= 6
    assert written / 20_000 < 60


def test_the_longest_chain_counts():
    a, b, c, d = Segment(0, 4, 1), Segment(0, 9, 1), Segment(5, 9, 1), Segment(12, 13, 1)
    assert chain([d, a, c, b], 0) == [b]
    assert chain([d, a, c], 0) == [a, c]
    assert chain([d, c], 3) == []


def test_segments_that_overlap_are_a_chain():
    """A run that was stopped while it merged deletes what it has read, and a newer segment began in that."""
    merged, newer, overlapping = Segment(0, 13, 1), Segment(13, 40, 1), Segment(10, 12, 1)
    assert chain([merged, newer, overlapping], 0) == [merged, newer]
    assert chain([Segment(0, 40, 1)], 10) == [Segment(0, 40, 1)]
