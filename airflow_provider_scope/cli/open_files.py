"""Which files keep an open batch from being loaded, as far as a look at them tells."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_provider_scope.cli.output import SHOWN_AT_MOST
from airflow_provider_scope.core.files import printable
from airflow_provider_scope.storage.local import SCHEME, local_path

if TYPE_CHECKING:
    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.core.records import OffsetEntry


def blocking(entry: OffsetEntry) -> list[str]:
    """Give a line for each file that is not what it was when its batch was logged.

    Only files on a disk are looked at: other stores would have to be listed.
    """
    found = [line for line in map(_blocking, entry.slice.audited) if line]
    more = [f"and {len(found) - SHOWN_AT_MOST:,} more"] if len(found) > SHOWN_AT_MOST else []
    return [*found[:SHOWN_AT_MOST], *more]


def _blocking(file: FileEntry) -> str:
    if not file.path.startswith(SCHEME):
        return ""
    try:
        status = os.stat(local_path(file.path))  # noqa: PTH116 - a name may be no valid text
    except FileNotFoundError:
        return f"blocked: {printable(file.path)} is missing"
    except OSError as err:
        return f"blocked: {printable(file.path)} could not be checked: {err.strerror}"
    if file.is_still(status.st_mtime_ns // 1_000_000, status.st_size):
        return ""
    return f"blocked: {printable(file.path)} has changed since it was logged"
