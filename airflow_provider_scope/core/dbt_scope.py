"""What dbt-scope writes beside a table, read as its own code reads it, but strictly.

dbt-scope takes a file that it cannot read for one that is not there. Here that is an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core.takeover import LoadedFile
from airflow_provider_scope.exceptions import CheckpointCorruptError

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Watermark:
    """``watermark.json``; a key that is missing has dbt-scope's default."""

    version: int = 0
    modified_time: str = ""
    batch_id: int = 0
    modified_ms: int | None = None
    """``modified_time`` in whole milliseconds, or None: dbt-scope then takes every file."""


def decode_watermark(name: str, data: bytes) -> Watermark:
    """Read ``watermark.json``.

    :raises CheckpointCorruptError: It is not what dbt-scope writes.
    """
    value = _object(name, data)
    version, batch_id = value.get("version", 0), value.get("batchId", 0)
    for key, number in (("version", version), ("batchId", batch_id)):
        if type(number) is not int or number < 0:
            raise damaged(name, f"has {key}={number!r}, expected a whole number, 0 or more")
    modified = value.get("modifiedTime", "")
    if not isinstance(modified, str):
        raise damaged(name, f"has modifiedTime={modified!r}, expected a time as text")
    return Watermark(version, modified, batch_id, _milliseconds(name, modified) if modified else None)


def _milliseconds(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise damaged(name, f"has modifiedTime={text!r}, which has no time zone")
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as err:
        raise damaged(name, f"has modifiedTime={text!r}, which is not a time") from err


def decode_sources(name: str, data: bytes, batch_id: int, store: str) -> list[LoadedFile]:
    """Read ``sources/<batchId>``.

    :param store: What stands before the paths in URIs.
    :raises CheckpointCorruptError: It is not what dbt-scope writes.
    """
    try:
        # Not splitlines(): a path may hold any of the other characters that it takes for line ends.
        lines = data.decode().split("\n")
    except UnicodeDecodeError as err:
        raise damaged(name, f"is not UTF-8 ({err})") from err
    rows = [loaded_file(name, _object(name, line), store) for line in lines if line.strip()]
    for row in rows:
        if row.batch_id != batch_id:
            raise damaged(name, f"holds a file of batch {row.batch_id}")
    return rows


def loaded_file(name: str, row: Mapping[str, Any], store: str) -> LoadedFile:
    """Give a row of ``sources/`` as a value; rows of ours have the URI and the size, too.

    :raises CheckpointCorruptError: A key is missing or has another type.
    """
    path, modified, batch_id = row.get("path"), row.get("modificationTime"), row.get("batchId")
    if not isinstance(path, str) or not path.startswith("/"):
        raise damaged(name, f"has path={path!r}, expected a path that begins with /")
    for key, number in (("modificationTime", modified), ("batchId", batch_id)):
        if type(number) is not int or number < 0:
            raise damaged(name, f"has {key}={number!r}, expected a whole number, 0 or more")
    uri, size = row.get("uri"), row.get("size")
    return LoadedFile(
        batch_id,  # type: ignore[arg-type] # an int, as seen above
        uri if isinstance(uri, str) else store + path,
        modified,  # type: ignore[arg-type]
        _text(row.get("batchProcessingTime")),
        size if type(size) is int else None,
    )


def _text(processed: object) -> str:
    """Give ``batchProcessingTime`` as text: DuckDB turns it into a timestamp in snapshots."""
    if isinstance(processed, datetime):
        known = processed if processed.tzinfo else processed.replace(tzinfo=UTC)
        return known.astimezone(UTC).isoformat(timespec="microseconds")
    return processed if isinstance(processed, str) else ""


def _object(name: str, data: bytes | str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise damaged(name, f"is not JSON ({err})") from err
    if not isinstance(value, dict):
        raise damaged(name, f"holds {type(value).__name__}, not an object")
    return value


def damaged(name: str, what: str) -> CheckpointCorruptError:
    """Give the error for a file of dbt-scope that cannot be read."""
    return CheckpointCorruptError(
        f"{name}, which dbt-scope wrote, {what}. It is not known what dbt-scope has loaded.",
        kept="the table, the checkpoint and all files; nothing was written",
        do="restore the file from a copy. Or run the task once with full_refresh=True, which replaces the "
        "table's rows with those of all files, and needs nothing that dbt-scope wrote",
    )
