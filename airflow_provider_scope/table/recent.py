"""What a remote table says of the pipeline, from its newest commits alone.

A table's checkpoint names every file of it, and may have gigabytes. Most looks need nothing of it: beside a
commit, Delta on Spark writes a checksum file, which names the table's id and the newest transactions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_HARMLESS = frozenset({"commitInfo", "add", "remove", "txn", "cdc"})
"""Actions that change neither what the table is nor how its log is read."""


def actions_of(commit: bytes) -> list[dict[str, Any]]:
    """Read the actions of a commit.

    :raises ValueError: A line is no JSON object.
    """
    found = [json.loads(line) for line in commit.split(b"\n") if line.strip()]
    if not all(isinstance(action, dict) for action in found):
        msg = "a line of a commit is not an object"
        raise ValueError(msg)
    return found


def info_of(actions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Give what a commit says of itself; empty if it says nothing."""
    return next((dict(info) for action in actions if (info := action.get("commitInfo"))), {})


def are_harmless(commits: Sequence[Sequence[dict[str, Any]]]) -> bool:
    """Tell whether commits added and took away rows and did nothing else."""
    return all(
        action.keys() <= _HARMLESS and (action.get("commitInfo") or {}).get("operation") != "RESTORE"
        for actions in commits
        for action in actions
    )


def transaction(checksum: bytes, newest: Sequence[dict[str, Any]], table_id: str, app_id: str) -> int | None:
    """Give the newest transaction of a pipeline, from the checksum file of the newest commit.

    None if the file does not tell: it is of another commit or of another table, or it names no transaction of
    the pipeline (Delta leaves them out if there are more than 100).
    """
    try:
        value = json.loads(checksum)
        is_of_commit = value["txnId"] == info_of(newest)["txnId"] and value["metadata"]["id"] == table_id
        versions = [txn["version"] for txn in value["setTransactions"] if txn["appId"] == app_id]
    except (ValueError, KeyError, TypeError):
        return None
    return int(versions[0]) if is_of_commit and len(versions) == 1 else None
