"""Discovery loses no file: each is taken, counted with a reason, loaded before, or a stream's part.

And batches cover the files, each once, in order and within the limits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.protocol.seen import NAMED_AT_MOST, Tally, status
from airflow_provider_scope.sources.files.discovery import Rules, candidates, is_hidden, next_batch, unseen
from airflow_provider_scope.values import FileEntry, Position, base_name, encodable, position
from tests.support.strategies import LISTINGS, SMALL_SIZES, SMALL_TIMES

if TYPE_CHECKING:
    from collections.abc import Callable

MATCHES: dict[tuple[str, ...], Callable[[str], bool]] = {
    ("",): lambda _: True,
    (r"\.ss$",): lambda name: name.endswith(".ss"),
    ("a",): lambda name: "a" in name,
    ("^_", r"\.ss$"): lambda name: name.startswith("_") or name.endswith(".ss"),
    ("in/",): lambda _: False,
}


def is_part(path: str, streams: set[str]) -> bool:
    """Return whether a file lies in the folder of a stream, at any depth."""
    return any(path.startswith(stream.removesuffix(".ss") + "/") for stream in streams)


def total_size(file: FileEntry, listing: list[FileEntry]) -> int:
    """Return a file's length, a stream's with its folder."""
    if not file.path.endswith(".ss"):
        return file.size_bytes
    folder = file.path.removesuffix(".ss") + "/"
    return file.size_bytes + sum(other.size_bytes for other in listing if other.path.startswith(folder))


@given(LISTINGS, st.sampled_from(list(MATCHES)), SMALL_TIMES, st.none() | SMALL_TIMES, st.data())
def test_every_matching_file_is_a_candidate_or_counted_and_named(
    listing: list[FileEntry],
    patterns: tuple[str, ...],
    young_after_ms: int,
    starting_at_ms: int | None,
    data: st.DataObject,
) -> None:
    rules = Rules(patterns=patterns, young_after_ms=young_after_ms, starting_at_ms=starting_at_ms)
    again = data.draw(st.lists(st.sampled_from(listing), max_size=5) if listing else st.just([]))

    found = candidates(data.draw(st.permutations([*listing, *again])), rules)

    streams = {file.path for file in listing if file.path.endswith(".ss")}
    matching = {
        file.path
        for file in listing
        if MATCHES[patterns](base_name(file.path)) and not is_part(file.path, streams)
    }
    taken = [file.path for file in found.files]
    assert found.listed == len(listing)
    assert found.matched == len(matching) == len(taken) + sum(found.left_out.counts.values())
    assert set(taken) <= matching
    assert len(set(taken)) == len(taken)
    named = [name for names in found.left_out.names.values() for name in names]
    assert sorted(named) == sorted(encodable(path) for path in matching - set(taken))
    assert all(len(names) <= NAMED_AT_MOST for names in found.left_out.names.values())


@given(LISTINGS, SMALL_TIMES, st.none() | SMALL_TIMES)
def test_candidates_are_fit_sorted_and_as_large_as_they_are(
    listing: list[FileEntry], young_after_ms: int, starting_at_ms: int | None
) -> None:
    rules = Rules(patterns=("",), young_after_ms=young_after_ms, starting_at_ms=starting_at_ms)

    files = candidates(listing, rules).files

    by_path = {file.path: file for file in listing}
    assert [position(file) for file in files] == sorted(position(file) for file in files)
    for file in files:
        assert file == by_path[file.path]._replace(size_bytes=total_size(by_path[file.path], listing))
        assert not is_hidden(base_name(file.path))
        assert max(1, starting_at_ms or 1) <= file.modified_ms <= young_after_ms
        assert file.size_bytes > 0


@given(LISTINGS, st.data())
def test_new_and_seen_files_part_the_candidates(listing: list[FileEntry], data: st.DataObject) -> None:
    rules = Rules(
        patterns=("",),
        young_after_ms=10,
        on_changed_file=data.draw(st.sampled_from(["ignore", "reload"])),
    )
    files = sorted(listing, key=position)
    seen = {
        file.path: (data.draw(st.just(file.modified_ms) | SMALL_TIMES), data.draw(SMALL_SIZES), None)
        for file in files
        if data.draw(st.booleans())
    }
    left_out = Tally()

    new = unseen(files, seen, rules, None, left_out)

    unchanged = [file for file in files if seen.get(file.path) == status(file)]
    assert len(new) + len(unchanged) + left_out.counts.get("changed after it was loaded", 0) == len(files)
    assert not set(new) & set(unchanged)
    assert [file for file in files if file in set(new)] == new
    assert {file for file in files if file.path not in seen} <= set(new)
    if rules.on_changed_file == "ignore":
        assert not any(file.path in seen for file in new)


@given(LISTINGS, st.none() | st.builds(Position, SMALL_TIMES, st.sampled_from(["", "file:///in/a", "g"])))
def test_skipping_late_files_parts_the_candidates_at_the_highest_position(
    listing: list[FileEntry], highest: Position | None
) -> None:
    rules = Rules(patterns=("",), young_after_ms=10, late_files="skip")
    files = sorted(listing, key=position)
    left_out = Tally()

    new = unseen(files, {}, rules, highest, left_out)

    assert new == [file for file in files if highest is None or position(file) > highest]
    assert left_out.counts.get("loaded before, or late", 0) == len(files) - len(new)


@given(LISTINGS, LISTINGS)
def test_what_one_run_took_the_next_one_does_not_take_again(
    first: list[FileEntry], second: list[FileEntry]
) -> None:
    rules = Rules(patterns=("",), young_after_ms=10)
    taken = unseen(candidates(first, rules).files, {}, rules, None, Tally())
    seen = {file.path: status(file) for file in taken}

    found = candidates([*first, *second], rules).files
    again = unseen(found, seen, rules, None, Tally())

    assert not {file.path for file in again} & set(seen)
    assert {file.path for file in again} | {file.path for file in found if file.path in seen} == {
        file.path for file in found
    }


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
