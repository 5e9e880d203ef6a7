"""The files behind the names of an EXTRACT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.emulator.account import PathError
from airflow_provider_scope.engines.streams import is_parquet

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_scope.emulator.account import Account

__all__ = ["ScriptFailedError", "StreamFile", "is_parquet", "open_stream"]


class ScriptFailedError(Exception):
    """The script is to blame: it names what is not there, or asks for what cannot be done."""


@dataclass(frozen=True, slots=True)
class StreamFile:
    """One file of an EXTRACT."""

    uri: str
    """As the script names it."""
    parts: tuple[Path, ...]
    """The files that hold its rows; those without any byte are left out."""
    size_bytes: int
    """Its own length and that of its parts."""
    modified_ms: int


def open_stream(account: Account, uri: str) -> StreamFile:
    """Find a file. ``X.ss`` with a folder ``X`` beside it is a manifest; the rows are in its ``.du`` files.

    :raises ScriptFailedError: It is not there.
    """
    try:
        path = account.local(uri)
    except PathError as err:
        raise ScriptFailedError(str(err)) from err
    if not path.is_file():
        raise ScriptFailedError(f"Input stream {uri} does not exist.")
    status = path.stat()
    sibling = path.with_suffix("")
    units: list[Path] = []
    if path.suffix == ".ss" and sibling.is_dir():
        units = sorted(unit for unit in sibling.rglob("*.du") if unit.is_file() and account.contains(unit))
    rows = units or [path]
    return StreamFile(
        uri,
        tuple(part for part in rows if part.stat().st_size),
        status.st_size + sum(unit.stat().st_size for unit in units),
        status.st_mtime_ns // 1_000_000,
    )
