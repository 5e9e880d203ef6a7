"""The storages that the contract suite runs on, and the ways to break each of them for real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.storage.opening import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from airflow_provider_scope.storage.protocol import Storage


@dataclass(frozen=True)
class Place:
    """A storage, and a location on it that nobody else uses."""

    storage: Storage
    uri: str

    def at(self, name: str) -> str:
        """Give the location of a name below this one."""
        return f"{self.uri}/{name}"


@dataclass(frozen=True)
class Backend:
    """One kind of storage."""

    name: str
    make: Callable[[Path], Place]
    """Gives an empty place; the folder is for backends that keep their data on this machine."""
    unreadable: Mapping[str, Callable[[Path], str]]
    """Makes a location that is neither readable nor known to be absent, and gives its URI."""
    partly_unreadable: Mapping[str, Callable[[Path], str]]
    """Makes a folder that can be listed but for one part of it, and gives its URI."""


def _local(folder: Path) -> Place:
    uri = f"file://{folder}"
    return Place(open_storage(uri), uri)


def _link_to_itself(folder: Path) -> str:
    (folder / "loop").symlink_to(folder / "loop")
    return f"file://{folder}/loop"


def _below_a_file(folder: Path) -> str:
    (folder / "plain").write_bytes(b"x")
    return f"file://{folder}/plain/below"


def _name_too_long(folder: Path) -> str:
    return f"file://{folder}/{'x' * 300}"


def _with_a_loop(folder: Path) -> str:
    (folder / "in" / "deep").mkdir(parents=True)
    (folder / "in" / "a").write_bytes(b"x")
    (folder / "in" / "deep" / "loop").symlink_to(folder / "in" / "deep" / "loop")
    return f"file://{folder}/in"


def _with_a_link_to_nowhere(folder: Path) -> str:
    (folder / "in").mkdir()
    (folder / "in" / "a").write_bytes(b"x")
    (folder / "in" / "b").symlink_to(folder / "nowhere")
    return f"file://{folder}/in"


def _with_a_link_to_itself(folder: Path) -> str:
    (folder / "in" / "x").mkdir(parents=True)
    (folder / "in" / "x" / "back").symlink_to(folder / "in")
    return f"file://{folder}/in"


BACKENDS = (
    Backend(
        "local",
        _local,
        {"loop of links": _link_to_itself, "below a file": _below_a_file, "name too long": _name_too_long},
        {
            "loop of links": _with_a_loop,
            "link to nowhere": _with_a_link_to_nowhere,
            "link to a folder above": _with_a_link_to_itself,
        },
    ),
)
