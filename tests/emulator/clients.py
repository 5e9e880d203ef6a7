"""Clients of WebHDFS that others wrote, behind one small interface.

``names`` gives what a folder holds: name -> length, None for a folder. ``length`` does the same for one
path. ``Missing`` and ``Refused`` are what a client raises for a path that is not there, and for one that
it may not use. fsspec 2026.9 cannot append: it forgets the
address that it was led to.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from azure.datalake import store as adls
from fsspec.implementations.webhdfs import WebHDFS


def _length(status: dict[str, Any]) -> int | None:
    return status["length"] if status["type"] == "FILE" else None


class Fsspec:
    Missing = FileNotFoundError
    Refused = (PermissionError, RuntimeError)

    def __init__(self, port: int) -> None:
        self.fs = WebHDFS(
            "127.0.0.1", port=port, user="u", use_listings_cache=False, skip_instance_cache=True
        )

    def names(self, path: str) -> dict[str, int | None]:
        return {
            entry["name"].rpartition("/")[2]: _length(entry | {"type": entry["type"].upper()})
            for entry in self.fs.ls(path, detail=True)
        }

    def length(self, path: str) -> int | None:
        found = self.fs.info(path)
        return found["size"] if found["type"] == "file" else None

    def exists(self, path: str) -> bool:
        return self.fs.exists(path)

    def read(self, path: str, start: int, end: int) -> bytes:
        return self.fs.cat_file(path, start=start, end=end)

    def write(self, path: str, data: bytes) -> None:
        with self.fs.open(path, "wb") as file:
            file.write(data)

    def mkdirs(self, path: str) -> None:
        self.fs.makedirs(path, exist_ok=True)

    def rename(self, path: str, target: str) -> None:
        self.fs.mv(path, target)

    def delete(self, path: str, *, recursive: bool) -> None:
        self.fs.rm(path, recursive=recursive)


class AzureSdk:
    """``azure-datalake-store``; it speaks https alone, so the emulator has a certificate."""

    Missing = FileNotFoundError
    Refused = (PermissionError, adls.exceptions.DatalakeRESTException)

    def __init__(self, port: int) -> None:
        # Its address is https://<store>.<suffix>/.
        self.fs = adls.core.AzureDLFileSystem(
            token_credential=bearer(), store_name="127", url_suffix=f"0.0.1:{port}"
        )

    def names(self, path: str) -> dict[str, int | None]:
        found = self.fs.ls(path, detail=True, invalidate_cache=True)
        return {entry["name"].rpartition("/")[2]: _length(entry) for entry in found}

    def length(self, path: str) -> int | None:
        return _length(self.fs.info(path, invalidate_cache=True))

    def exists(self, path: str) -> bool:
        return self.fs.exists(path, invalidate_cache=True)

    def read(self, path: str, start: int, end: int) -> bytes:
        return self.fs.read_block(path, start, end - start)

    def write(self, path: str, data: bytes) -> None:
        with self.fs.open(path, "wb") as file:
            file.write(data)

    def append(self, path: str, data: bytes) -> None:
        with self.fs.open(path, "ab") as file:
            file.write(data)

    def mkdirs(self, path: str) -> None:
        self.fs.mkdir(path)

    def rename(self, path: str, target: str) -> None:
        self.fs.mv(path, target)

    def delete(self, path: str, *, recursive: bool) -> None:
        self.fs.rm(path, recursive=recursive)


def bearer() -> Any:
    """A credential with a token that is good for an hour."""
    return SimpleNamespace(
        get_token=lambda *_, **__: SimpleNamespace(token="x", expires_on=int(time.time()) + 3600)
    )
