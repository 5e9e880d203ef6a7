"""What the versions of a table changed, read from the commits in its log."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core.attempts import Change
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, TableUnreadableError
from airflow_provider_scope.storage.opening import open_storage

if TYPE_CHECKING:
    from airflow_provider_scope.storage.protocol import Storage


def changes(
    location: str, since: int, upto: int, marker_property: str, storage: Storage | None = None
) -> list[Change]:
    """Give what the versions after ``since`` changed, oldest first.

    :param location: Canonical URI of the table.
    :param upto: The newest version to read.
    :param marker_property: The table property that holds the mark of an attempt.
    :param storage: Where the table is; None is a disk of this machine.
    :raises BatchOutcomeUnknownError: A commit has been cleaned out of the log.
    :raises TableUnreadableError: A commit could not be understood.
    """
    store = storage or open_storage(location)
    found: list[Change] = []
    mark: str | None = None
    for version in range(since + 1, upto + 1):
        name = f"{location}/_delta_log/{version:020}.json"
        data = store.read(name)
        if data is None:
            raise BatchOutcomeUnknownError(
                f"The log of the table {location} no longer holds version {version} "
                "(delta.logRetentionDuration): it cannot be seen whether a job's rows are in the table.",
                kept="the table, the checkpoint and all files; no job was submitted",
                do="look at the table, then record what you found with `airflow scope settle`",
            )
        change, is_restore = _change(name, version, data, marker_property)
        # Metadata is written as a whole: only a mark that differs from the one before is new. A RESTORE
        # brings an old mark back, while the job that made the newest one may still add its rows.
        is_new = change.marker is not None and change.marker != mark and not is_restore
        mark = change.marker or mark
        found.append(change if is_new else replace(change, marker=None))
    return found


def _change(name: str, version: int, data: bytes, marker_property: str) -> tuple[Change, bool]:
    """Read a commit, and whether it is a RESTORE: what that adds is no job's."""
    marker: str | None = None
    adds: list[dict[str, Any]] = []
    info: dict[str, Any] = {}
    try:
        for line in data.splitlines():
            action = json.loads(line) if line.strip() else {}
            if "metaData" in action:
                marker = action["metaData"].get("configuration", {}).get(marker_property)
            if action.get("add", {}).get("dataChange"):
                adds.append(action["add"])
            info = action.get("commitInfo", info)
        counts = [int(json.loads(add["stats"])["numRecords"]) for add in adds if add.get("stats")]
        size = sum(int(add["size"]) for add in adds)
        is_restore = info.get("operation") == "RESTORE"
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise TableUnreadableError(
            f"The commit {name} could not be understood: {err!r}.",
            kept="the table, the checkpoint and all files; no job was submitted",
            do="check the file; the next try reads it again",
        ) from err
    rows = sum(counts) if len(counts) == len(adds) else None
    return Change(version, marker, bool(adds) and not is_restore, rows, size, _made_by(info)), is_restore


def _made_by(info: dict[str, Any]) -> str:
    """Name a commit's operation and writer; what is written there is up to the writer."""
    writer = next((info[key] for key in ("userName", "engineInfo", "clientVersion") if info.get(key)), "")
    named = f"{info.get('operation') or 'unnamed operation'} by {writer or 'an unnamed writer'}"
    return "".join(sign for sign in named if sign.isprintable())[:120]
