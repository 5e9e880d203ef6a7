"""Sources on fsspec filesystems without a listing of our own."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from airflow_provider_scope.exceptions import (
    InputError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceUnreadableError,
)
from airflow_provider_scope.stores.objects import ObjectSource
from airflow_provider_scope.values import FileEntry

if TYPE_CHECKING:
    from pathlib import Path


class Flat(LocalFileSystem):
    """A store with a listing of its own for all that is below a folder."""

    cachable = False

    def __init__(self, found: dict[str, dict[str, Any]] | Exception) -> None:
        super().__init__()
        self.found = found

    def find(self, path: str, **kwargs: Any) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return dict(self.found)

    def info(self, path: str, **kwargs: Any) -> Any:
        raise FileNotFoundError(path)


class Failing(LocalFileSystem):
    """A store of which one folder cannot be listed."""

    cachable = False

    def __init__(self, folder: str, error: Exception) -> None:
        super().__init__()
        self.folder = folder
        self.error = error

    def ls(self, path: str, **kwargs: Any) -> Any:
        if path == self.folder:
            raise self.error
        return super().ls(path, **kwargs)


@pytest.fixture
def tree(tmp_path: Path) -> str:
    for name in ("a", "x/b c%20", "x/y/c", "empty/.keep"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "empty/.keep").unlink()
    for name in ("a", "x/b c%20", "x/y/c"):
        os.utime(tmp_path / name, ns=(0, 1_700_000_000_123_000_000))
    return str(tmp_path)


def test_each_folder_is_listed_and_times_have_milliseconds(tree: str) -> None:
    root = f"sftp://{tree}"  # any scheme whose path the filesystem takes
    files = sorted(ObjectSource(Local()).walk(root))

    assert files == [FileEntry(1_700_000_000_123, f"{root}/{name}", 5) for name in ("a", "x/b c%20", "x/y/c")]


class Local(LocalFileSystem):
    """The local disk under another scheme."""

    cachable = False
    protocol = ("sftp", "file")


def test_an_empty_folder_has_no_files(tree: str) -> None:
    assert list(ObjectSource(Local()).walk(f"sftp://{tree}/empty")) == []


@pytest.mark.parametrize("fs", [Local(), Flat({})])
def test_a_root_that_does_not_exist_says_so(fs: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError) as caught:
        list(ObjectSource(fs).walk(f"file://{tmp_path}/nothing"))

    assert caught.value.what == f"The source folder file://{tmp_path}/nothing does not exist."


def test_a_root_that_is_a_file_is_an_error(tree: str) -> None:
    with pytest.raises(SourceUnreadableError, match="it is a file, not a folder"):
        list(ObjectSource(Local()).walk(f"sftp://{tree}/a"))
    with pytest.raises(SourceUnreadableError, match="it is a file, not a folder"):
        list(ObjectSource(Flat({f"{tree}/a": {"size": 1, "type": "file"}})).walk(f"file://{tree}/a"))


@pytest.mark.parametrize("below", ["", "/x", "/x/y"])
@pytest.mark.parametrize(
    ("problem", "error"),
    [(PermissionError("no"), SourceRefusedError), (OSError("no"), SourceUnreadableError)],
)
def test_no_folder_is_left_out(tree: str, below: str, problem: Exception, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        list(ObjectSource(Failing(tree + below, problem)).walk(f"file://{tree}"))

    assert type(caught.value) is error


def test_a_folder_that_is_deleted_during_the_listing_is_not_there(tree: str) -> None:
    source = ObjectSource(Failing(f"{tree}/x", FileNotFoundError()))

    assert [file.path for file in source.walk(f"file://{tree}")] == [f"file://{tree}/a"]


def test_a_flat_listing_is_taken_as_it_is() -> None:
    info = {"size": 5, "type": "file", "LastModified": datetime(2026, 11, 21, 20, 1, 3, 123_999, tzinfo=UTC)}
    listing = {"/in/a": info, "/in/x": {**info, "type": "directory"}, "/in/x/": info, "/in/x/b": info}

    assert list(ObjectSource(Flat(listing)).walk("file:///in")) == [
        FileEntry(1795291263123, "file:///in/a", 5),
        FileEntry(1795291263123, "file:///in/x/b", 5),
    ]


def test_a_flat_listing_that_fails_is_not_an_empty_one() -> None:
    with pytest.raises(SourceUnreadableError):
        list(ObjectSource(Flat(TimeoutError())).walk("file:///in"))


@pytest.mark.parametrize(
    ("info", "modified_ms"),
    [
        ({"mtime": 1_700_000_000.123}, 1_700_000_000_123),
        ({"modificationTime": 1_700_000_000_123}, 1_700_000_000_123),
        ({"LastModified": datetime.fromisoformat("2023-11-14T22:13:20.123")}, 1_700_000_000_123),
        (
            {"last_modified": datetime(2023, 11, 14, 23, 13, 20, tzinfo=timezone(timedelta(hours=1)))},
            1_700_000_000_000,
        ),
        ({"updated": "2023-11-14T22:13:20.123Z"}, 1_700_000_000_123),
        ({"mtime": None, "updated": "2023-11-14T22:13:20Z"}, 1_700_000_000_000),
        ({"updated": "yesterday"}, 0),
        ({"created": datetime(2023, 11, 14, tzinfo=UTC)}, 0),
        ({}, 0),
    ],
)
def test_the_modification_time_is_found_under_each_name_and_never_guessed(
    info: dict[str, Any], modified_ms: int
) -> None:
    source = ObjectSource(Flat({"/in/a": {"size": 5, "type": "file", **info}}))

    assert list(source.walk("file:///in")) == [FileEntry(modified_ms, "file:///in/a", 5)]


@pytest.mark.parametrize("info", [{"size": None}, {}])
def test_a_file_without_a_length_is_an_error(info: dict[str, Any]) -> None:
    with pytest.raises(SourceUnreadableError, match="does not tell the length"):
        list(ObjectSource(Flat({"/in/a": {"type": "file", **info}})).walk("file:///in"))


def test_a_file_from_elsewhere_is_an_error() -> None:
    with pytest.raises(SourceUnreadableError, match="not below it"):
        list(ObjectSource(Flat({"/inner/a": {"type": "file", "size": 5}})).walk("file:///in"))


def test_a_memory_filesystem_is_a_source() -> None:
    fs = MemoryFileSystem()
    fs.pipe_file("/of-this-test/a", b"12345")

    assert list(ObjectSource(fs).walk("memory:///of-this-test")) == [
        FileEntry(0, "memory:///of-this-test/a", 5)
    ]


def test_control_files_are_refused_with_the_reason() -> None:
    source = ObjectSource(MemoryFileSystem())

    for call in (
        lambda: source.names("memory:///a"),
        lambda: source.read("memory:///a"),
        lambda: source.put_if_absent("memory:///a", b""),
        lambda: source.replace("memory:///a", b""),
        lambda: source.delete("memory:///a"),
    ):
        with pytest.raises(InputError, match="it ends with its process"):
            call()


def test_secrets_of_a_store_are_not_in_its_errors() -> None:
    url = "https://acme.blob.core.windows.net/in?sv=2025&sig=c2VjcmV0%3D"

    with pytest.raises(SourceUnreadableError) as caught:
        list(ObjectSource(Flat(OSError(f"cannot connect to {url}"))).walk("file:///in"))

    assert "sig=***" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
