"""The storages that the contract suite runs on, and the ways to break each of them for real."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.stores.protocol import open_storage
from tests.support import azurite, hdfs, s3, toy_store
from tests.support.connecting import GEN1_AUTHORITY, HDFS_AUTHORITY, HDFS_USER, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from airflow_provider_scope.stores.protocol import Storage


@dataclass(frozen=True)
class Place:
    """A storage, and a location on it that nobody else uses."""

    storage: Storage
    uri: str
    address: str = ""
    """URL of the service, for another process to connect to; empty for a disk."""
    emulator: Emulator | None = None

    def at(self, name: str) -> str:
        """The location of a name below this one."""
        return f"{self.uri}/{name}"


@dataclass(frozen=True)
class Backend:
    """One kind of storage."""

    name: str
    make: Callable[[Path], AbstractContextManager[Place]]
    """Gives an empty place; the folder is for backends that keep their data on this machine."""
    unreadable: Mapping[str, Callable[[Place, Path], str]]
    """Makes a location that is neither readable nor known to be absent, and gives its URI."""
    partly_unreadable: Mapping[str, Callable[[Place, Path], str]] = field(default_factory=dict)
    """Makes a folder that can be listed but for one part of it, and gives its URI."""
    has_folders: bool = True
    """Whether a folder is there without its files, so that no file can have its name."""
    impossible: tuple[str, ...] = ()
    """Characters that no name of this storage has."""
    raced_names: int = 50
    """Names that eight writers race for."""
    races: int = 1000
    """Names that two writers race for."""
    marks: tuple[pytest.MarkDecorator, ...] = ()

    @property
    def param(self) -> Any:
        """The backend as a parameter of tests."""
        return pytest.param(self, id=self.name, marks=self.marks)


@contextmanager
def _local(folder: Path) -> Iterator[Place]:
    uri = f"file://{folder}"
    yield Place(open_storage(uri), uri)


@contextmanager
def _toy(folder: Path) -> Iterator[Place]:
    with toy_store.registered():
        uri = f"toy://{folder}"
        yield Place(open_storage(uri), uri)


@contextmanager
def _azurite(folder: Path) -> Iterator[Place]:
    container = uuid.uuid4().hex
    address = azurite.address()
    azurite.filesystem(address).mkdir(container)
    uri = f"abfss://{container}@{azurite.HOST}"
    yield Place(connect(uri, address), uri, address)


@contextmanager
def _s3(folder: Path) -> Iterator[Place]:
    address = s3.address()
    uri = f"s3://{s3.make_bucket(address)}"
    yield Place(connect(uri, address), uri, address)


@contextmanager
def _gen1(folder: Path) -> Iterator[Place]:
    with Emulator(folder / "account") as emulator:
        emulator.account.path(("place",)).mkdir()
        uri = f"adl://{GEN1_AUTHORITY}/place"
        yield Place(connect(uri, emulator.url), uri, emulator.url, emulator)


@contextmanager
def _hdfs(folder: Path) -> Iterator[Place]:
    cluster = hdfs.start()
    path = f"/{uuid.uuid4().hex}"
    cluster.make_folder(path, HDFS_USER)
    uri = f"webhdfs://{cluster.authority}{path}"
    yield Place(connect(uri, cluster.url), uri, cluster.url)


@contextmanager
def _webhdfs(folder: Path) -> Iterator[Place]:
    with Emulator(folder / "account", max_append_bytes=2**30) as emulator:
        emulator.account.path(("place",)).mkdir()
        uri = f"webhdfs://{HDFS_AUTHORITY}/place"
        yield Place(connect(uri, emulator.url), uri, emulator.url, emulator)


def _link_to_itself(place: Place, folder: Path) -> str:
    (folder / "loop").symlink_to(folder / "loop")
    return f"file://{folder}/loop"


def _below_a_file(place: Place, folder: Path) -> str:
    (folder / "plain").write_bytes(b"x")
    return f"file://{folder}/plain/below"


def _name_too_long(place: Place, folder: Path) -> str:
    return f"file://{folder}/{'x' * 300}"


def _name_too_long_for_a_toy(place: Place, folder: Path) -> str:
    return place.at("x" * 300)


def _with_a_loop(place: Place, folder: Path) -> str:
    (folder / "in" / "deep").mkdir(parents=True)
    (folder / "in" / "a").write_bytes(b"x")
    (folder / "in" / "deep" / "loop").symlink_to(folder / "in" / "deep" / "loop")
    return f"file://{folder}/in"


def _with_a_link_to_nowhere(place: Place, folder: Path) -> str:
    (folder / "in").mkdir()
    (folder / "in" / "a").write_bytes(b"x")
    (folder / "in" / "b").symlink_to(folder / "nowhere")
    return f"file://{folder}/in"


def _with_a_link_to_itself(place: Place, folder: Path) -> str:
    (folder / "in" / "x").mkdir(parents=True)
    (folder / "in" / "x" / "back").symlink_to(folder / "in")
    return f"file://{folder}/in"


def _bad_container(place: Place, folder: Path) -> str:
    return f"abfss://{'x' * 100}@{azurite.HOST}/in"


def _no_bucket(place: Place, folder: Path) -> str:
    return "s3://no-such-bucket/in"


def _denied(place: Place, folder: Path) -> str:
    assert place.emulator
    place.emulator.set(denied_paths=("/place/denied",))
    return place.at("denied")


def _with_a_denied_folder(place: Place, folder: Path) -> str:
    assert place.emulator
    place.storage.replace(place.at("in/a"), b"x")
    place.storage.replace(place.at("in/deep/below/b"), b"x")
    place.emulator.set(denied_paths=("/place/in/deep",))
    return place.at("in")


def _denied_by_hdfs(place: Place, folder: Path) -> str:
    _make_hdfs_folder(place.at("denied"))
    return place.at("denied")


def _with_a_folder_denied_by_hdfs(place: Place, folder: Path) -> str:
    place.storage.replace(place.at("in/a"), b"x")
    _make_hdfs_folder(place.at("in/deep"))
    return place.at("in")


def _make_hdfs_folder(uri: str) -> None:
    cluster = hdfs.start()
    cluster.make_folder(uri.removeprefix(f"webhdfs://{cluster.authority}"), hdfs.USER, permission="700")


LOCAL = Backend(
    "local",
    _local,
    {"loop of links": _link_to_itself, "below a file": _below_a_file, "name too long": _name_too_long},
    {
        "loop of links": _with_a_loop,
        "link to nowhere": _with_a_link_to_nowhere,
        "link to a folder above": _with_a_link_to_itself,
    },
    raced_names=200,
)
TOY = Backend("toy", _toy, {"name too long": _name_too_long_for_a_toy})
AZURITE = Backend(
    "azurite",
    _azurite,
    {"a container that cannot be": _bad_container},
    has_folders=False,
    # Azurite takes it for a slash, and canonical URIs have none.
    impossible=("\\",),
    marks=(pytest.mark.azurite,),
)
S3 = Backend(
    "s3",
    _s3,
    {"no bucket": _no_bucket},
    has_folders=False,
    # moto finds no route for it.
    impossible=("\n",),
    marks=(pytest.mark.s3,),
)
# What the real service decides is raced for on HDFS itself.
_EMULATED: dict[str, Any] = {
    "unreadable": {"denied": _denied},
    "partly_unreadable": {"denied": _with_a_denied_folder},
    "raced_names": 20,
    "races": 50,
}
GEN1_EMULATOR = Backend("gen1", _gen1, **_EMULATED)
WEBHDFS_EMULATOR = Backend("webhdfs", _webhdfs, **_EMULATED)
HDFS = Backend(
    "hdfs",
    _hdfs,
    {"denied": _denied_by_hdfs},
    {"denied": _with_a_folder_denied_by_hdfs},
    # HDFS has no names with a colon, and reads another file for a decomposed letter than it lists.
    impossible=(":", "\u0301"),
    marks=(pytest.mark.hdfs,),
)

BACKENDS = (LOCAL, TOY, AZURITE, S3, GEN1_EMULATOR, WEBHDFS_EMULATOR, HDFS)
"""Tests against Azurite, S3 and HDFS are run when they are asked for, as ``make test-s3`` does."""
