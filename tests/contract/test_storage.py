"""What every storage does. A new implementation is added to ``tests/support/storages.py``."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    SourceNotFoundError,
    SourceRefusedError,
    SourceUnreadableError,
    StorageError,
)
from tests.support.connecting import connect
from tests.support.processes import start_module
from tests.support.racing import content, race, writer
from tests.support.storages import BACKENDS, Backend, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

UNUSUAL = [
    "with space",
    " leading and trailing ",
    "100%",
    "%20",
    "a+b&c",
    "#1",
    "q?x=1",
    "star*[1]{a,b}",
    "'single' \"double\"",
    "back\\slash",
    "semi;colon:colon",
    "dollar$tilde~",
    "café-日本-\U0001f600",
    "cafe\u0301",
    "line\nbreak\r",
    "tab\t",
    "\u2028\x85",
    "-rf",
    "x" * 200,
]


@pytest.fixture(params=[backend.param for backend in BACKENDS])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


@pytest.fixture
def place(backend: Backend, tmp_path: Path) -> Iterator[Place]:
    with backend.make(tmp_path) as made:
        yield made


@pytest.fixture(params=UNUSUAL)
def name(request: pytest.FixtureRequest, backend: Backend) -> str:
    if any(character in request.param for character in backend.impossible):
        pytest.skip("no name of this storage")
    return request.param


def listed(place: Place, below: str = "") -> dict[str, int]:
    """List the files below a location with their sizes."""
    root = place.uri + below
    files = list(place.storage.walk(root))
    assert len({file.path for file in files}) == len(files)
    return {file.path.removeprefix(root + "/"): file.size_bytes for file in files}


# ---- walk -------------------------------------------------------------------------------------------


def test_walk_lists_every_file_below_a_folder(place: Place) -> None:
    for name, size in (("a", 1), ("x/b", 2), ("x/y/z/c", 3), ("x/.hidden", 4), ("_d", 0), ("a.d", 5)):
        place.storage.replace(place.at(name), b"." * size)

    assert listed(place) == {"a": 1, "x/b": 2, "x/y/z/c": 3, "x/.hidden": 4, "_d": 0, "a.d": 5}
    assert listed(place, "/x") == {"b": 2, "y/z/c": 3, ".hidden": 4}


def test_walk_gives_times_in_milliseconds(place: Place) -> None:
    place.storage.replace(place.at("old"), b"1")
    place.storage.replace(place.at("new"), b"1")

    times = {file.path[-3:]: file.modified_ms for file in place.storage.walk(place.uri)}

    assert 1_700_000_000_000 < times["old"] <= times["new"] < 10_000_000_000_000


def test_walk_of_an_empty_folder_is_empty(place: Place) -> None:
    place.storage.replace(place.at("x/a"), b"1")
    place.storage.delete(place.at("x/a"))

    assert listed(place) == {}


def test_walk_of_a_missing_root_says_so(place: Place) -> None:
    with pytest.raises(SourceNotFoundError) as caught:
        list(place.storage.walk(place.at("nothing")))

    assert caught.value.what == f"The source folder {place.at('nothing')} does not exist."
    assert caught.value.is_retryable


def test_walk_of_a_file_is_an_error(place: Place) -> None:
    place.storage.replace(place.at("a"), b"1")

    with pytest.raises(SourceUnreadableError):
        list(place.storage.walk(place.at("a")))


# ---- names ------------------------------------------------------------------------------------------


def test_names_are_those_of_the_files_in_a_folder_sorted(place: Place) -> None:
    for name in ("b", "a", "10", "9", "below/c"):
        place.storage.replace(place.at(f"log/{name}"), b"1")

    assert place.storage.names(place.at("log")) == ["10", "9", "a", "b"]


def test_names_of_a_missing_folder_are_none(place: Place) -> None:
    assert place.storage.names(place.at("nothing")) == []
    assert place.storage.names(place.at("nothing/below")) == []


# ---- read, replace, delete --------------------------------------------------------------------------


def test_a_missing_file_reads_as_none(place: Place) -> None:
    assert place.storage.read(place.at("a")) is None
    assert place.storage.read(place.at("nothing/a")) is None


@pytest.mark.parametrize("data", [b"", b"x", b"\x00\xff\r\n", bytes(range(256)) * 20_000])
def test_content_comes_back_as_it_was(place: Place, data: bytes) -> None:
    assert place.storage.put_if_absent(place.at("put/a"), data) == data
    place.storage.replace(place.at("replaced/a"), data)

    assert place.storage.read(place.at("put/a")) == data
    assert place.storage.read(place.at("replaced/a")) == data


def test_a_control_file_of_any_size_does_not_fill_the_memory(place: Place) -> None:
    place.storage.replace(place.at("fits"), b"x" * 1000)
    place.storage.replace(place.at("larger"), b"x" * 1001)

    assert place.storage.read(place.at("fits"), 1000) == b"x" * 1000
    with pytest.raises(StorageError, match="it is larger than 1,000 bytes"):
        place.storage.read(place.at("larger"), 1000)


def test_replace_creates_and_overwrites(place: Place) -> None:
    place.storage.replace(place.at("a"), b"long content")
    place.storage.replace(place.at("a"), b"short")

    assert place.storage.read(place.at("a")) == b"short"
    assert place.storage.names(place.uri) == ["a"]


def test_delete_may_be_repeated(place: Place) -> None:
    place.storage.replace(place.at("a"), b"1")
    place.storage.replace(place.at("b"), b"2")

    place.storage.delete(place.at("a"))
    place.storage.delete(place.at("a"))
    place.storage.delete(place.at("nothing/a"))

    assert place.storage.read(place.at("a")) is None
    assert place.storage.names(place.uri) == ["b"]


def test_names_are_taken_as_they_are(place: Place, name: str) -> None:
    path = place.at(f"in/{name}")

    assert place.storage.put_if_absent(path, b"first") == b"first"
    assert place.storage.put_if_absent(path, b"second") == b"first"
    assert place.storage.names(place.at("in")) == [name]
    assert [file.path for file in place.storage.walk(place.uri)] == [path]
    assert place.storage.read(path) == b"first"
    place.storage.replace(path, b"third")
    assert place.storage.read(path) == b"third"
    place.storage.delete(path)
    assert place.storage.read(path) is None


def test_folders_are_taken_as_they_are(place: Place, name: str) -> None:
    path = place.at(f"{name}/a")

    place.storage.replace(path, b"1")

    assert place.storage.names(place.at(name)) == ["a"]
    assert [file.path for file in place.storage.walk(place.at(name))] == [path]


def test_names_that_look_alike_are_different_files(place: Place, backend: Backend) -> None:
    alike = ["a b", "a%20b", "a+b", "A B", "a  b", "caf\u00e9", "cafe\u0301"]
    names = sorted(name for name in alike if not any(c in name for c in backend.impossible))
    for name in names:
        assert place.storage.put_if_absent(place.at(name), name.encode()) == name.encode()

    assert place.storage.names(place.uri) == names
    assert [place.storage.read(place.at(name)) for name in names] == [name.encode() for name in names]


# ---- put_if_absent ----------------------------------------------------------------------------------


def test_what_is_there_stays(place: Place) -> None:
    assert place.storage.put_if_absent(place.at("log/0"), b"first") == b"first"
    assert place.storage.put_if_absent(place.at("log/0"), b"second") == b"first"
    assert place.storage.put_if_absent(place.at("log/0"), b"first") == b"first"
    assert place.storage.read(place.at("log/0")) == b"first"


def test_an_empty_file_is_there(place: Place) -> None:
    assert place.storage.put_if_absent(place.at("a"), b"") == b""
    assert place.storage.put_if_absent(place.at("a"), b"x") == b""
    assert place.storage.read(place.at("a")) == b""


def test_a_name_is_free_again_after_it_was_deleted(place: Place) -> None:
    place.storage.put_if_absent(place.at("a"), b"first")
    place.storage.delete(place.at("a"))

    assert place.storage.put_if_absent(place.at("a"), b"second") == b"second"
    assert place.storage.read(place.at("a")) == b"second"


def test_nothing_but_the_names_that_were_asked_for_is_there(place: Place) -> None:
    for n in range(5):
        place.storage.put_if_absent(place.at(f"log/{n}"), b"1")
        place.storage.put_if_absent(place.at(f"log/{n}"), b"2")
        place.storage.replace(place.at("log/same"), b"3")

    assert place.storage.names(place.at("log")) == ["0", "1", "2", "3", "4", "same"]
    assert listed(place) == {f"log/{name}": 1 for name in ["0", "1", "2", "3", "4", "same"]}


RACERS = 8


@pytest.fixture
def raced(backend: Backend) -> list[str]:
    return [f"{n:020}" for n in range(backend.raced_names)]


def check_winners(place: Place, won: list[list[str]], raced: list[str]) -> None:
    """Check that every name has one winner, whose whole content it holds."""
    assert Counter(name for names in won for name in names) == Counter(raced)
    for who, names in enumerate(won):
        for name in names:
            assert place.storage.read(place.at(name)) == content(who, name)
    assert place.storage.names(place.uri) == raced
    assert sorted(listed(place)) == raced


def test_one_of_many_threads_wins_each_name(place: Place, raced: list[str]) -> None:
    won: list[list[str]] = [[] for _ in range(RACERS)]
    start = threading.Barrier(RACERS)

    def run(who: int) -> None:
        start.wait()
        won[who] = race(place.uri, place.address, who, raced)

    threads = [threading.Thread(target=run, args=(who,)) for who in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    check_winners(place, won, raced)


@pytest.mark.slow
def test_one_of_many_processes_wins_each_name_and_no_reader_sees_a_part(
    place: Place, raced: list[str]
) -> None:
    racers = [
        start_module("tests.support.racing", place.uri, place.address, str(who), str(len(raced)))
        for who in range(RACERS)
    ]
    for racer in racers:
        assert racer.stdout
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()

    seen: dict[str, int] = {}
    while any(racer.poll() is None for racer in racers):
        for name in place.storage.names(place.uri):
            data = place.storage.read(place.at(name))
            assert data is not None
            assert seen.setdefault(name, writer(data, name)) == writer(data, name)

    won = [json.loads(racer.communicate()[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * RACERS
    check_winners(place, won, raced)


def test_two_writers_race_many_times(backend: Backend, place: Place) -> None:
    names = [f"{n:04}" for n in range(backend.races)]
    won: dict[int, list[str]] = {}
    start = threading.Barrier(2)

    def run(who: int) -> None:
        storage = connect(place.uri, place.address)
        start.wait()
        ours = b"%d" % who
        won[who] = [name for name in names if storage.put_if_absent(place.at(name), ours) == ours]

    threads = [threading.Thread(target=run, args=(who,)) for who in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(won[0] + won[1]) == names
    assert {place.storage.read(place.at(name)) for name in won[0]} <= {b"0"}
    assert {place.storage.read(place.at(name)) for name in won[1]} <= {b"1"}


def test_a_reader_sees_the_old_content_or_the_new_one(place: Place) -> None:
    path = place.at("watermark.json")
    versions = [bytes([n]) * 50_000 for n in range(60)]
    place.storage.replace(path, versions[0])
    done = threading.Event()
    read: list[bytes | None] = []

    def look() -> None:
        while not done.is_set():
            read.append(place.storage.read(path))
        read.append(place.storage.read(path))

    reader = threading.Thread(target=look)
    reader.start()
    for data in versions:
        place.storage.replace(path, data)
    done.set()
    reader.join()

    assert {data in versions for data in read} == {True}
    assert read[-1] == versions[-1]


# ---- unreadable is not absent -----------------------------------------------------------------------

CALLS: dict[str, Callable[[Place, str], Any]] = {
    "names": lambda place, uri: place.storage.names(uri),
    "read": lambda place, uri: place.storage.read(f"{uri}/a"),
    "put_if_absent": lambda place, uri: place.storage.put_if_absent(f"{uri}/a", b"1"),
    "replace": lambda place, uri: place.storage.replace(f"{uri}/a", b"1"),
    "delete": lambda place, uri: place.storage.delete(f"{uri}/a"),
}
broken = pytest.mark.parametrize(
    ("backend", "way"),
    [
        pytest.param(backend, way, id=f"{backend.name}-{way}", marks=backend.marks)
        for backend in BACKENDS
        for way in backend.unreadable
    ],
)


@broken
@pytest.mark.parametrize("call", CALLS)
def test_a_control_file_that_cannot_be_reached_is_an_error(
    backend: Backend, way: str, call: str, place: Place, tmp_path: Path
) -> None:
    uri = backend.unreadable[way](place, tmp_path)

    with pytest.raises(StorageError) as caught:
        CALLS[call](place, uri)

    assert uri in caught.value.what
    assert caught.value.kept
    assert caught.value.do
    assert caught.value.is_retryable


@broken
def test_a_root_that_cannot_be_reached_is_not_a_missing_one(
    backend: Backend, way: str, place: Place, tmp_path: Path
) -> None:
    uri = backend.unreadable[way](place, tmp_path)

    with pytest.raises((SourceUnreadableError, SourceRefusedError)):
        list(place.storage.walk(uri))


@pytest.mark.parametrize(
    ("backend", "way"),
    [
        pytest.param(backend, way, id=f"{backend.name}-{way}", marks=backend.marks)
        for backend in BACKENDS
        for way in backend.partly_unreadable
    ],
)
def test_a_folder_of_which_a_part_cannot_be_listed_is_an_error(
    backend: Backend, way: str, place: Place, tmp_path: Path
) -> None:
    uri = backend.partly_unreadable[way](place, tmp_path)

    with pytest.raises((SourceUnreadableError, SourceRefusedError)) as caught:
        list(place.storage.walk(uri))

    assert uri.removeprefix("file://") in caught.value.what
    assert caught.value.is_retryable


def test_a_folder_is_no_control_file(backend: Backend, place: Place) -> None:
    if not backend.has_folders:
        pytest.skip("a flat store has no folders")
    place.storage.replace(place.at("folder/a"), b"1")

    for call in (
        lambda: place.storage.read(place.at("folder")),
        lambda: place.storage.replace(place.at("folder"), b"1"),
        lambda: place.storage.delete(place.at("folder")),
    ):
        with pytest.raises(StorageError):
            call()
    assert place.storage.read(place.at("folder/a")) == b"1"
