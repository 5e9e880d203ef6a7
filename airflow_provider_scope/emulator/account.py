"""The account directory: which path of the service is which file, and nothing outside of it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from airflow_provider_scope.exceptions import InputError

PRIVATE = ".emulator"
"""The folder of the emulator's own state; no path of the service leads there."""


class PathError(Exception):
    """A path is not valid, or leads out of the account."""


def parts_of(path: str) -> tuple[str, ...]:
    """Give the segments of a path; empty ones and ``.`` are left out, as clients send both.

    :raises PathError: A segment is ``..``, or not a name.
    """
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts or any("\0" in part for part in parts):
        raise PathError(f"{path!r} is not a path of the account.")
    return parts


def decoded_parts(path: str) -> tuple[str, ...]:
    """Give the segments of a percent-encoded path; a plus is a plus.

    :raises PathError: It is not valid.
    """
    try:
        return parts_of(unquote(path, errors="strict"))
    except UnicodeDecodeError as err:
        raise PathError("The path is not encoded as UTF-8.") from err


class Account:
    """A directory that stands for a store."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.private = self.root / PRIVATE
        self.private.mkdir(exist_ok=True)

    def claim(self) -> IO[bytes]:
        """Take the directory for this process, until the file is closed or the process ends.

        :raises InputError: Another emulator has it.
        """
        file = (self.private / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            file.close()
            raise InputError(
                f"Another emulator uses {self.root}.",
                kept="everything; no port was opened",
                do="stop it, or name another directory",
            ) from err
        return file

    def path(self, parts: tuple[str, ...]) -> Path:
        """Give the file or folder of a path; links are followed as long as they stay inside.

        :raises PathError: It leads out of the account, or to the emulator's own state.
        """
        path = self.root.joinpath(*parts)
        if not self.contains(path):
            raise PathError(f"/{'/'.join(parts)} is not a path of the account.")
        return path

    def contains(self, path: Path) -> bool:
        """Tell whether a path, its links followed, lies inside, and not in the emulator's own state."""
        try:
            real = Path(os.path.realpath(path))
        except (OSError, ValueError):
            return False
        return real.is_relative_to(self.root) and not real.is_relative_to(self.private)

    def local(self, uri: str) -> Path:
        """Give the local path of a URI or path in a script.

        ``abfss://<container>@<account>...`` and ``adl://<account>...`` lose scheme and host: the
        container of an ``abfss`` URI is a folder below the root, so
        ``abfss://data@acct.dfs.core.windows.net/a/b`` is ``<root>/data/a/b``. A ``file:`` URI and a plain
        path that lies below the root are taken as they are; any other plain path is one of the account.

        :raises PathError: It leads out of the account, or its scheme is not known.
        """
        scheme, separator, rest = uri.partition("://")
        if not separator:
            scheme, rest = ("file", uri[5:]) if uri.startswith("file:/") else ("", uri)
        if scheme in ("abfss", "abfs"):
            authority, _, path = rest.partition("/")
            container, at, _ = authority.partition("@")
            if not (container and at):
                raise PathError(f"{uri} has no container.")
            return self.path(parts_of(f"{container}/{path}"))
        if scheme in ("adl", "swebhdfs", "webhdfs"):
            return self.path(parts_of(rest.partition("/")[2]))
        if scheme not in ("", "file"):
            raise PathError(f"{uri}: the scheme {scheme} is not known to the emulator.")
        candidate = Path("/", *parts_of(rest))
        if candidate.is_relative_to(self.root) and self.contains(candidate):
            return candidate
        if scheme == "file":
            raise PathError(f"{uri} lies outside of the account directory.")
        return self.path(parts_of(rest))
