"""The JSON of files, folders and listings, keys in the recorded order."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from pathlib import Path

OWNER = "6d0e5a4c-3b52-4b8e-9a55-2f3a1c7e9b10"
GROUP = "c2b1f0de-7a41-4f0f-8f2b-90d1a6b4e311"
OWNER_NAME = "emulator@example.com"
GROUP_NAME = "emulator-users"
PERMISSION = "770"
BLOCK_SIZE = 268435456
NEWEST_WITHOUT_TOKEN = "2018-05-01"  # noqa: S105 - an API version


def is_plain(found: os.stat_result) -> bool:
    """Tell whether something is a file or a folder; the service knows nothing else."""
    return stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)


def status(found: os.stat_result, suffix: str, expires: int, *, object_ids: bool) -> dict[str, Any]:
    """Give the status of a file or folder."""
    folder = stat.S_ISDIR(found.st_mode)
    modified = found.st_mtime_ns // 1_000_000
    shown: dict[str, Any] = {
        "length": 0 if folder else found.st_size,
        "pathSuffix": suffix,
        "type": "DIRECTORY" if folder else "FILE",
        "blockSize": 0 if folder else BLOCK_SIZE,
        # Reads do not move it on the service, but may on this disk.
        "accessTime": min(found.st_atime_ns // 1_000_000, modified),
        "modificationTime": modified,
        "replication": 0 if folder else 1,
        "permission": PERMISSION,
        "owner": OWNER if object_ids else OWNER_NAME,
        "group": GROUP if object_ids else GROUP_NAME,
    }
    if not folder:
        shown["msExpirationTime"] = expires
    shown["aclBit"] = False
    return shown


def ordinal(name: str) -> bytes:
    """Give the key of the recorded order: by code unit, upper case before lower case."""
    return name.encode("utf-16-be", errors="surrogatepass")


def listing(entries: list[dict[str, Any]], token: str, version: str | None) -> dict[str, Any]:
    """Give a page; versions up to 2018-05-01 have no token, and the key comes first in later ones."""
    if version is not None and version <= NEWEST_WITHOUT_TOKEN:
        return {"FileStatuses": {"FileStatus": entries}}
    return {"FileStatuses": {"continuationToken": token, "FileStatus": entries}}


def summary(folder: Path, contains: Any) -> dict[str, int]:
    """Count what lies in a folder, itself included; or a single file."""
    folders = files = length = 0
    pending = [folder]
    while pending:
        path = pending.pop()
        found = path.stat()
        if not stat.S_ISDIR(found.st_mode):
            files, length = files + 1, length + found.st_size
            continue
        folders += 1
        pending.extend(child for child in path.iterdir() if not child.is_symlink() and contains(child))
    return {
        "directoryCount": folders,
        "fileCount": files,
        "length": length,
        "quota": -1,
        "spaceConsumed": length,
        "spaceQuota": -1,
    }


def acl_status(*, object_ids: bool) -> dict[str, Any]:
    """Give the access list that everything has."""
    return {
        "AclStatus": {
            "entries": [],
            "owner": OWNER if object_ids else OWNER_NAME,
            "group": GROUP if object_ids else GROUP_NAME,
            "permission": PERMISSION,
            "stickyBit": False,
        }
    }
