"""What the table says about the pipeline: the truth that every recovery asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from airflow_provider_scope.core.record_text import notes
from airflow_provider_scope.core.records import TableStamp
from airflow_provider_scope.core.recovery import MISSING_TABLE, Landed, Restored, TableState
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError
from airflow_provider_scope.table.opening import newest_version, open_table, unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

    from airflow_provider_scope.storage.protocol import Storage

__all__ = ["newest_version", "probe"]


def probe(
    location: str,
    app_id: str | None,
    baseline: tuple[TableStamp | None, int],
    storage: Storage | None = None,
) -> TableState:
    """Look at a Delta table, through its log alone.

    :param location: Canonical URI of the table.
    :param app_id: The pipeline's ``appId``; None for a pipeline that does not exist yet.
    :param baseline: The stamp that is expected and the version at which it was seen. Only the log
        after that version is searched for RESTOREs and for batches of the pipeline.
    :param storage: Where the table is; None is a disk of this machine.
    :raises TableUnreadableError: The log could not be read. That never means "no table".
    :raises BatchOutcomeUnknownError: Versions after the baseline have been cleaned out of the log.
    """
    expected, since = baseline
    needed = since + 1 if expected else 0
    with open_table(location, storage, since=needed) as table:
        if table is None:
            return MISSING_TABLE
        try:
            table_id = str(table.metadata().id)
            same = expected is not None and expected.table_id == table_id
            if same or needed == 0:
                return _state(table, location, app_id, baseline)
        except (DeltaError, OSError, ValueError) as err:
            raise unreadable(location, err) from err
    # Another table than the expected one: all of its commits count.
    return probe(location, app_id, (None, -1), storage)


def _state(
    table: DeltaTable, location: str, app_id: str | None, baseline: tuple[TableStamp | None, int]
) -> TableState:
    expected, since = baseline
    version = table.version()
    table_id = str(table.metadata().id)
    txn = table.transaction_version(app_id) if app_id else None
    same = expected is not None and expected.table_id == table_id
    history = _history(table, since + 1 if same else 0, version)
    if same and [h["version"] for h in history] != list(range(version, since, -1)):
        raise _cleaned(location, since, version)
    restores = tuple(_restore(h) for h in history if h.get("operation") == "RESTORE")
    newest = max(
        (r.version for r in restores), default=expected.restore_version if same and expected else None
    )
    landed = {} if app_id is None else _landed(history, app_id)
    has_rows = app_id is None and _has_rows(table)
    return TableState(TableStamp(table_id, newest), version, txn, landed, restores, has_rows)


def _has_rows(table: DeltaTable) -> bool:
    """Tell whether a table has a row; a file that does not tell how many it holds has some."""
    counts = pa.table(table.get_add_actions())["num_records"]
    return bool(counts.null_count or pc.any(pc.greater(counts, 0)).as_py())


def _history(table: DeltaTable, first: int, version: int) -> list[dict[str, Any]]:
    """Read commit infos of ``first`` to ``version``, newest first; a commit that came since is left out."""
    if version < first:
        return []
    limit = version - first + 1
    found = table.history(limit)
    newer = found[0]["version"] - version if found else 0
    if newer > 0:
        found = table.history(limit + newer)
    return [h for h in found if first <= h["version"] <= version]


def _landed(history: Sequence[dict[str, Any]], app_id: str) -> dict[int, Landed]:
    landed: dict[int, Landed] = {}
    for info in history:
        ours = notes(info.get("userMetadata"))
        if ours.get("pipeline") == app_id and type(ours.get("seq")) is int:
            metrics = info.get("operationMetrics") or {}
            landed[ours["seq"]] = Landed(
                version=info["version"],
                rows=_metric(metrics, "numOutputRows", "num_added_rows"),
                written_bytes=_metric(metrics, "numOutputBytes"),
                abandoned=ours.get("abandoned") is True,
                quarantined=ours.get("quarantined") or {},
                columns=ours.get("columns"),
            )
    return landed


def _metric(metrics: dict[str, Any], *names: str) -> int | None:
    """Give a metric; Spark and delta-rs name them differently, and Spark writes numbers as text."""
    for name in names:
        if name in metrics:
            return int(metrics[name])
    return None


def _restore(info: dict[str, Any]) -> Restored:
    target = (info.get("operationParameters") or {}).get("version")
    return Restored(info["version"], int(target) if target not in (None, "", "null") else None)


def _cleaned(location: str, since: int, version: int) -> BatchOutcomeUnknownError:
    return BatchOutcomeUnknownError(
        f"The log of the table {location} no longer holds all of the versions {since + 1} to {version} "
        "(delta.logRetentionDuration): whether it was restored in between cannot be seen.",
        kept="the table, the checkpoint and all files; nothing was written",
        do=f"check the table, then run `airflow scope accept-table {location}`",
    )
