"""What the table's log says about the pipeline: the truth on which every recovery relies.

A table's checkpoint names every file of the table, and may have gigabytes. Most probes do without it: with
each commit, Delta on Spark writes a checksum file, which names the table's id and the newest transactions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from airflow_provider_scope.delta.commit import written_rows
from airflow_provider_scope.delta.log import newest_commits, open_table, unreadable
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError
from airflow_provider_scope.expectations import RuleCount
from airflow_provider_scope.protocol.bad_records import Quarantined
from airflow_provider_scope.protocol.records import TableIdentity, notes
from airflow_provider_scope.protocol.recovery import (
    MISSING_TABLE,
    NO_BASELINE,
    NO_VERSION,
    CommittedBatch,
    Restored,
    TableState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_scope.delta.commit import DeltaCommit
    from airflow_provider_scope.delta.log import OpenTable
    from airflow_provider_scope.protocol.recovery import Baseline
    from airflow_provider_scope.stores.protocol import Storage


_MERGE_METRICS = {
    "inserted": "numTargetRowsInserted",
    "updated": "numTargetRowsUpdated",
    "deleted": "numTargetRowsDeleted",
}
"""Kind of change -> Delta's metric of the rows that a MERGE changed so."""


def probe(
    location: str,
    app_id: str | None,
    baseline: Baseline,
    storage: Storage,
) -> TableState:
    """Read the state of a Delta table, from its log alone.

    :param location: Canonical URI of the table.
    :param app_id: The pipeline's ``appId``; None for a pipeline that does not exist yet.
    :param baseline: The expected table. Only the log after its version is searched for RESTOREs and for
        batches of the pipeline.
    :param storage: Where the table is.
    :raises TableUnreadableError: The log could not be read. That never means "no table".
    :raises BatchOutcomeUnknownError: Versions after the baseline have been cleaned out of the log.
    """
    expected, since = baseline
    state = _recent(location, app_id, baseline, storage)
    if state:
        return state
    needed = since + 1 if expected else 0
    with open_table(location, storage, since=needed) as table:
        if table is None:
            return MISSING_TABLE
        try:
            table_id = str(table.delta.metadata().id)
            is_expected = expected is not None and expected.table_id == table_id
            if is_expected or needed == 0:
                return _state(table, location, app_id, baseline)
        except (DeltaError, OSError, ValueError) as err:
            raise unreadable(location, err) from err
    # Another table than the expected one: all of its commits count.
    return probe(location, app_id, NO_BASELINE, storage)


def _recent(
    location: str,
    app_id: str | None,
    baseline: Baseline,
    storage: Storage,
) -> TableState | None:
    """Read the state from the commits since the baseline alone; None if these do not tell it."""
    expected, since = baseline
    if expected is None or app_id is None:
        return None
    newest_files = newest_commits(location, since, storage)
    if newest_files is None:
        return None
    checksum, commits = newest_files
    later = [commit for commit in commits if commit.version > since]
    txn = transaction(checksum, commits[-1], expected.table_id, app_id)
    if txn is None or not are_harmless(later):
        return None
    committed = _committed(reversed(later), app_id)
    return TableState(expected, commits[-1].version, txn, committed, oldest=since + 1)


def _state(table: OpenTable, location: str, app_id: str | None, baseline: Baseline) -> TableState:
    expected, since = baseline
    version = table.delta.version()
    table_id = str(table.delta.metadata().id)
    txn = table.delta.transaction_version(app_id) if app_id else None
    is_expected = expected is not None and expected.table_id == table_id
    versions = range(version, since if is_expected else -1, -1)
    commits = [commit for number in versions if (commit := table.commit(number)) is not None]
    if is_expected and len(commits) < len(versions):
        raise _versions_cleaned_up(location, since, version)
    restores = _restores(commits[::-1], table_id if is_expected else None)
    newest_restore = max(
        (r.version for r in restores), default=expected.restore_version if is_expected and expected else None
    )
    committed = {} if app_id is None else _committed(commits, app_id)
    has_rows = app_id is None and _has_rows(table)
    existing = {commit.version for commit in commits}
    oldest = next((number + 1 for number in versions if number not in existing), versions.stop + 1)
    return TableState(
        TableIdentity(table_id, newest_restore), version, txn, committed, restores, has_rows, oldest=oldest
    )


def _has_rows(table: OpenTable) -> bool:
    """Whether a table has a row; a file without a number of rows counts as having some."""
    counts = pa.table(table.delta.get_add_actions())["num_records"]
    return bool(counts.null_count or pc.any(pc.greater(counts, 0)).as_py())


def _committed(commits: Iterable[DeltaCommit], app_id: str) -> dict[int, CommittedBatch]:
    """Find the batches of a pipeline; of a batch that is there twice, the oldest commit counts.

    :param commits: The newest first.
    """
    committed: dict[int, CommittedBatch] = {}
    for commit in commits:
        info = commit.info
        batch_notes = notes(info.get("userMetadata"))
        if batch_notes.get("pipeline") == app_id and type(batch_notes.get("seq")) is int:
            metrics = info.get("operationMetrics") or {}
            committed[batch_notes["seq"]] = CommittedBatch(
                version=commit.version,
                rows=_rows(metrics),
                written_bytes=_metric(metrics, "numOutputBytes"),
                abandoned=batch_notes.get("abandoned") is True,
                quarantined={
                    unit: Quarantined(**bad) for unit, bad in (batch_notes.get("quarantined") or {}).items()
                },
                warned={rule: RuleCount(**rows) for rule, rows in (batch_notes.get("warned") or {}).items()},
                rescued=batch_notes.get("rescued") or {},
                changes=_changes(batch_notes, metrics),
                columns=batch_notes.get("columns"),
                state=batch_notes.get("state"),
            )
    return committed


def _rows(metrics: dict[str, Any]) -> int | None:
    """How many rows of the batch a commit wrote; Delta counts those that it copied as well."""
    if _MERGE_METRICS["inserted"] in metrics:
        return sum(int(metrics.get(_MERGE_METRICS[name], 0)) for name in ("inserted", "updated"))
    rows = written_rows(metrics)
    return _metric(metrics, "num_added_rows") if rows is None else rows


def _changes(batch_notes: dict[str, Any], metrics: dict[str, Any]) -> dict[str, int]:
    """Collect the counts of a row-level write: those of Delta, and those that the write noted itself."""
    counts = batch_notes.get("changes")
    if not isinstance(counts, dict):
        return {}
    if _MERGE_METRICS["inserted"] in metrics:
        of_table = {name: _metric(metrics, metric) or 0 for name, metric in _MERGE_METRICS.items()}
        offered = batch_notes.get("offered")
        more = {} if offered is None else {"unchanged": offered - sum(of_table.values())}
        return {**of_table, **counts, **more}
    # Rows that are replaced as a whole, by partitions or by a refresh, are counted by nobody.
    return {"inserted": _rows(metrics) or 0, **counts}


def _metric(metrics: dict[str, Any], *names: str) -> int | None:
    """Read a metric; Spark and delta-rs name them differently, and Spark writes numbers as text."""
    for name in names:
        if name in metrics:
            return int(metrics[name])
    return None


def _restores(commits: Iterable[DeltaCommit], table_id: str | None) -> tuple[Restored, ...]:
    """Find the commits after which a table has the rows of an earlier version, or none of those before.

    :param commits: The oldest first.
    :param table_id: The table's id before them; None if it is not known.
    """
    restores = []
    for commit in commits:
        changed_id = None if commit.metadata is None else str(commit.metadata["id"])
        if commit.is_restore:
            target = (commit.info.get("operationParameters") or {}).get("version")
            to_version = int(target) if target not in (None, "", "null") else None
            restores.append(Restored(commit.version, to_version))
        elif changed_id and table_id not in (None, changed_id) and commit.operation != "MERGE":
            # delta-rs gives a table another id with a MERGE that adds columns, which leaves the rows there.
            restores.append(Restored(commit.version, NO_VERSION))  # CREATE OR REPLACE TABLE
        table_id = changed_id or table_id
    return tuple(restores)


def _versions_cleaned_up(location: str, since: int, version: int) -> BatchOutcomeUnknownError:
    return BatchOutcomeUnknownError(
        f"The log of the table {location} no longer holds all of the versions {since + 1} to {version} "
        "(delta.logRetentionDuration): it cannot be seen whether the table was restored in between.",
        kept="the table, the checkpoint and all files; nothing was written",
        do="check the table, then run `airflow scope accept-table`",
    )


_HARMLESS = frozenset({"commitInfo", "add", "remove", "txn", "cdc"})
"""Actions that change neither what the table is nor how its log is read."""


def are_harmless(commits: Iterable[DeltaCommit]) -> bool:
    """Whether commits added and removed rows and did nothing else."""
    return all(
        not commit.is_restore and action.keys() <= _HARMLESS
        for commit in commits
        for action in commit.actions
    )


def transaction(checksum: bytes, newest: DeltaCommit, table_id: str, app_id: str) -> int | None:
    """Read the newest transaction of a pipeline in the checksum file of the newest commit.

    None if the file does not tell it: it is of another commit or of another table, or it names no transaction
    of the pipeline (Delta leaves them out if there are more than 100).
    """
    try:
        value = json.loads(checksum)
        is_of_commit = value["txnId"] == newest.info["txnId"] and value["metadata"]["id"] == table_id
        versions = [txn["version"] for txn in value["setTransactions"] if txn["appId"] == app_id]
    except (ValueError, KeyError, TypeError):
        return None
    return int(versions[0]) if is_of_commit and len(versions) == 1 else None
