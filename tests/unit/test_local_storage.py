"""What is special about a disk: links, rights, names that are bytes, times in nanoseconds."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import SourceNotFoundError, SourceUnreadableError, StorageError
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.values import FileEntry
from tests.support.processes import as_nobody

if TYPE_CHECKING:
    from collections.abc import Iterator

STORAGE = LocalStorage()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach; pytest's own belong to the user who runs the tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def paths(root: Path) -> list[str]:
    return sorted(file.path.removeprefix(f"file://{root}/") for file in STORAGE.walk(f"file://{root}"))


# ---- listing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modified_ns", "expected_ms"),
    [
        (1_775_046_896_789_999_999, 1_775_046_896_789),
        (1_775_046_896_789_000_000, 1_775_046_896_789),
        (999_999, 0),
        (0, 0),
        (-1, -1),
    ],
)
def test_times_are_cut_to_milliseconds(tmp_path: Path, modified_ns: int, expected_ms: int) -> None:
    (tmp_path / "a").write_bytes(b"123")
    os.utime(tmp_path / "a", ns=(0, modified_ns))

    assert list(STORAGE.walk(f"file://{tmp_path}")) == [FileEntry(expected_ms, f"file://{tmp_path}/a", 3)]


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    (tmp_path / "outside" / "x").mkdir(parents=True)
    (tmp_path / "outside" / "x" / "b").write_bytes(b"22")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "in" / "a").symlink_to(tmp_path / "outside" / "x" / "b")

    files = sorted(STORAGE.walk(f"file://{tmp_path}/in"), key=lambda file: file.path)

    assert [(file.path, file.size_bytes) for file in files] == [
        (f"file://{tmp_path}/in/a", 2),
        (f"file://{tmp_path}/in/linked/x/b", 2),
    ]


def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"1")
    (tmp_path / "root").symlink_to(tmp_path / "real")

    assert paths(tmp_path / "root") == ["a"]


def test_a_link_to_a_folder_that_is_listed_lists_no_file_twice(tmp_path: Path) -> None:
    (tmp_path / "2026-11-25" / "x").mkdir(parents=True)
    (tmp_path / "2026-11-25" / "x" / "a").write_bytes(b"1")
    (tmp_path / "latest").symlink_to("2026-11-25")
    (tmp_path / "newest").symlink_to("2026-11-25/x")

    assert paths(tmp_path) == ["2026-11-25/x/a"]
    assert paths(tmp_path / "latest") == ["x/a"]


def test_a_link_to_a_folder_that_may_be_hidden_is_followed(tmp_path: Path) -> None:
    (tmp_path / ".releases" / "5").mkdir(parents=True)
    (tmp_path / ".releases" / "5" / "a").write_bytes(b"1")
    (tmp_path / "current").symlink_to(".releases/5")

    assert paths(tmp_path) == [".releases/5/a", "current/a"]


def test_two_links_to_one_folder_are_two_folders(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one").symlink_to(tmp_path / "real")
    (tmp_path / "in" / "two").symlink_to(tmp_path / "real")

    assert paths(tmp_path / "in") == ["one/a", "two/a"]


@pytest.mark.parametrize("root", ["root", "root/in"])
def test_a_root_that_leads_nowhere_is_not_a_missing_one(tmp_path: Path, root: str) -> None:
    (tmp_path / "root").symlink_to(tmp_path / "nowhere")

    with pytest.raises(SourceUnreadableError) as caught:
        paths(tmp_path / root)

    assert names_the_link(caught.value, tmp_path / "root", tmp_path / "nowhere")


def names_the_link(err: SourceUnreadableError | StorageError, link: Path, target: Path) -> bool:
    named = f"{link} is a link to {target}, which does not exist." in err.what
    return named and err.do.startswith(f"bring back {target}") and "permission" not in err.do


def test_names_that_are_not_utf8_are_listed_as_they_are(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9")).write_bytes(b"1")

    assert paths(tmp_path) == ["caf\udce9"]


def test_a_pipe_is_listed_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert [file.size_bytes for file in STORAGE.walk(f"file://{tmp_path}")] == [0]


def test_a_folder_that_this_user_may_not_list_stops_the_listing(open_folder: Path) -> None:
    (open_folder / "in" / "open").mkdir(parents=True)
    (open_folder / "in" / "open" / "a").write_bytes(b"1")
    (open_folder / "in" / "closed").mkdir(mode=0o000)

    answer = as_nobody(lambda: paths(open_folder / "in"))

    assert isinstance(answer, SourceUnreadableError)
    assert answer.what.startswith(f"{open_folder}/in/closed could not be listed: [Errno 13]")


def test_a_root_below_a_folder_that_this_user_may_not_enter_is_not_a_missing_one(open_folder: Path) -> None:
    (open_folder / "closed").mkdir(mode=0o000)

    answer = as_nobody(lambda: paths(open_folder / "closed" / "in"))

    assert isinstance(answer, SourceUnreadableError)


def test_a_folder_of_many_files_is_listed_in_little_memory(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / str(number)).touch()

    tracemalloc.start()
    count = sum(1 for _ in STORAGE.walk(f"file://{tmp_path}"))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 3000
    assert peak_bytes < 200_000  # an entry with its status takes 900 bytes


def test_a_file_that_vanishes_while_its_folder_is_listed_is_not_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"1")
    listing = STORAGE.walk(f"file://{tmp_path}")

    first = next(listing)
    second = "b" if first.path.endswith("a") else "a"
    (tmp_path / second).unlink()

    assert list(listing) == []


def test_a_folder_that_vanishes_before_it_is_listed_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "_temporary").mkdir()
    listing = STORAGE.walk(f"file://{tmp_path}")

    next(listing)
    (tmp_path / "_temporary").rmdir()

    assert list(listing) == []


def test_a_root_that_vanishes_while_it_is_listed_is_missing(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_bytes(b"1")
    listing = STORAGE.walk(f"file://{root}")

    next(listing)
    root.rename(tmp_path / "elsewhere")

    with pytest.raises(SourceNotFoundError):
        list(listing)


def test_a_root_that_is_replaced_while_it_is_listed_stops_the_listing(tmp_path: Path) -> None:
    """Unmounting a disk leaves the empty folder on which it was mounted."""
    root = tmp_path / "in"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_bytes(b"1")
    listing = STORAGE.walk(f"file://{root}")

    next(listing)
    root.rename(tmp_path / "elsewhere")
    root.mkdir()

    with pytest.raises(SourceUnreadableError):
        list(listing)


def test_a_link_whose_target_vanishes_stops_the_listing(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"1")
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "target")
    listing = STORAGE.walk(f"file://{tmp_path}/in")

    next(listing)
    (tmp_path / "target").unlink()

    with pytest.raises(SourceUnreadableError) as caught:
        list(listing)
    assert "permission" not in caught.value.do
    assert "which does not exist" in caught.value.what


def test_a_folder_that_becomes_a_file_stops_the_listing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    listing = STORAGE.walk(f"file://{tmp_path}")

    next(listing)
    (tmp_path / "folder").rmdir()
    (tmp_path / "folder").write_bytes(b"1")

    with pytest.raises(SourceUnreadableError):
        list(listing)


# ---- control files ----------------------------------------------------------------------------------


def test_control_files_that_this_user_may_not_read_are_not_absent(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir()
    (closed / "0").write_bytes(b"1")
    closed.chmod(0o000)

    listed = as_nobody(lambda: STORAGE.names(f"file://{closed}"))
    read = as_nobody(lambda: STORAGE.read(f"file://{closed}/0"))
    put = as_nobody(lambda: STORAGE.put_if_absent(f"file://{closed}/1", b"1"))
    closed.chmod(0o700)

    assert [type(answer) for answer in (listed, read, put)] == [StorageError] * 3
    assert [path.name for path in closed.iterdir()] == ["0"]


CALLS = {
    "list": STORAGE.names,
    "read": lambda folder: STORAGE.read(f"{folder}/0"),
    "create": lambda folder: STORAGE.put_if_absent(f"{folder}/0", b"1"),
    "replace": lambda folder: STORAGE.replace(f"{folder}/0", b"1"),
}


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("folder", ["link", "link/below"])
def test_a_folder_that_leads_nowhere_is_not_an_empty_one(tmp_path: Path, folder: str, verb: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    with pytest.raises(StorageError) as caught:
        CALLS[verb](f"file://{tmp_path}/{folder}")

    assert names_the_link(caught.value, tmp_path / "link", tmp_path / "nowhere")


@pytest.mark.parametrize("verb", ["list", "read"])
def test_a_record_that_is_a_link_to_nowhere_is_not_absent(tmp_path: Path, verb: str) -> None:
    (tmp_path / "0").symlink_to(tmp_path / "nowhere")

    with pytest.raises(StorageError) as caught:
        CALLS[verb](f"file://{tmp_path}")

    assert names_the_link(caught.value, tmp_path / "0", tmp_path / "nowhere")


def test_permissions_are_the_advice_for_what_lacks_them_and_for_nothing_else(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o000)

    refused = as_nobody(lambda: STORAGE.names(f"file://{closed}"))
    (open_folder / "a").write_bytes(b"1")
    with pytest.raises(StorageError) as fault:
        STORAGE.replace(f"file://{open_folder}/a/0", b"1")

    assert refused.do.startswith(f"give the worker's user permission on {closed}")
    assert (fault.value.do.startswith("check the disk"), "permission" in fault.value.do) == (True, False)


def test_the_folder_that_refuses_is_named_and_not_a_file_that_could_be_read(open_folder: Path) -> None:
    closed, full = open_folder / "closed", open_folder / "full"
    for folder in (closed, full):
        folder.mkdir()
        (folder / "pipeline.json").write_bytes(b"{}")
        (folder / "pipeline.json").chmod(0o644)
    closed.chmod(0o000)
    full.chmod(0o555)
    (full / "own").write_bytes(b"{}")
    (full / "own").chmod(0o000)

    on = "give the worker's user permission on "
    assert as_nobody(lambda: STORAGE.read(f"file://{closed}/pipeline.json")).do.startswith(f"{on}{closed}. ")
    assert as_nobody(lambda: STORAGE.names(f"file://{closed}/in/it")).do.startswith(f"{on}{closed}. ")
    assert as_nobody(lambda: STORAGE.put_if_absent(f"file://{full}/0", b"")).do.startswith(f"{on}{full}. ")
    assert as_nobody(lambda: STORAGE.delete(f"file://{full}/pipeline.json")).do.startswith(f"{on}{full}. ")
    assert as_nobody(lambda: STORAGE.read(f"file://{full}/own")).do.startswith(f"{on}{full}/own. ")


def test_what_a_crash_leaves_behind_is_no_name(tmp_path: Path) -> None:
    (tmp_path / ".abc123.tmp").write_bytes(b"half a rec")
    (tmp_path / "0").write_bytes(b"1")

    assert STORAGE.names(f"file://{tmp_path}") == ["0"]


def test_a_name_that_is_a_link_to_nowhere_is_taken(tmp_path: Path) -> None:
    (tmp_path / "0").symlink_to(tmp_path / "nowhere")

    with pytest.raises(StorageError, match="0 is a link to"):
        STORAGE.put_if_absent(f"file://{tmp_path}/0", b"1")
    assert not (tmp_path / "nowhere").exists()


def test_a_disk_without_hard_links_is_not_taken_for_one_without_permission(tmp_path, monkeypatch) -> None:
    def link(source: Path, name: Path) -> None:  # as link(2) answers on exFAT and on most FUSE mounts
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(source), None, str(name))

    monkeypatch.setattr(os, "link", link)

    with pytest.raises(StorageError) as caught:
        STORAGE.put_if_absent(f"file://{tmp_path}/0", b"1")
    assert caught.value.do.startswith("its file system has no hard links")
    assert not list(tmp_path.iterdir())


def test_control_files_have_the_rights_that_the_user_gives_to_new_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        STORAGE.put_if_absent(f"file://{tmp_path}/put", b"1")
        STORAGE.replace(f"file://{tmp_path}/replaced", b"1")
    finally:
        os.umask(before)

    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("put", "replaced")] == [0o644, 0o644]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError):
        STORAGE.put_if_absent(f"file://{tmp_path}/{'x' * 300}", b"1")
    with pytest.raises(StorageError):
        STORAGE.replace(f"file://{tmp_path}/folder", b"1")

    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_disk_that_is_full_leaves_nothing_behind(open_folder: Path) -> None:
    """A limit on the size of files fails in the middle of a write, as a full disk does."""
    (open_folder / "in").mkdir()
    (open_folder / "in").chmod(0o777)

    def write() -> list[type[Exception]]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
        answers = []
        for call in (STORAGE.put_if_absent, STORAGE.replace):
            try:
                call(f"file://{open_folder}/in/0", b"x" * 2_000)
            except StorageError as err:
                answers.append(type(err))
        return answers

    assert as_nobody(write) == [StorageError, StorageError]
    assert list((open_folder / "in").iterdir()) == []
