"""The command that shows the pipelines of all Dags of this Airflow."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.cli import targets
from airflow_provider_scope.cli.output import command, quiet
from airflow_provider_scope.cli.tasks import NOT_MAPPED, Instance, instances
from airflow_provider_scope.engines import assembly, clock
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.protocol import first_run, recovery
from airflow_provider_scope.protocol.intervals import IntervalLog
from airflow_provider_scope.protocol.view import check_decided, read_log
from airflow_provider_scope.sources.cursor.source import CursorRows
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.specs import FileSource, Replace
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.values import FileSlice, Window, iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_scope.cli.targets import IntervalState
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.run import MicroBatchExecution
    from airflow_provider_scope.protocol.source import Request
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.specs.ingest import Ingest


@command
def list_pipelines(args: Namespace) -> None:
    """Show each pipeline as a row; nothing is written, no source is listed, no JVM is started."""
    from airflow.cli.simple_table import AirflowConsole  # noqa: PLC0415

    with quiet(verbose=args.verbose):
        rows = [_row(instance) for dag in _dags(args.bundle_name) for instance in instances(dag)]
    AirflowConsole().print_as(rows, args.output)


def _dags(bundle_names: list[str] | None) -> Iterator[Any]:
    """Read the Dags of all bundles, or of the named ones, from their files."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager  # noqa: PLC0415
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415

    for bundle in DagBundlesManager().get_all_dag_bundles():  # type: ignore[no-untyped-call] # Airflow's
        if not bundle_names or bundle.name in bundle_names:
            bundle.initialize()
            bag = DagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
            yield from (bag.dags[dag_id] for dag_id in sorted(bag.dags))


def _row(instance: Instance) -> dict[str, Any]:
    """Give the row of a pipeline; its ``error`` says why fields are missing."""
    row: dict[str, Any] = {
        "dag_id": instance.dag.dag_id,
        "task_id": instance.task.task_id,
        "map_index": None if instance.map_index == NOT_MAPPED else instance.map_index,
        "table": None,
        "checkpoint": None,
        "state": "unknown",
        "committed": None,
        "lag": None,
        "open": [],
        "last_run": _last_run(instance),
        "error": None,
    }
    try:
        _fill(row, instance)
    except (ScopeProviderError, AirflowException) as err:
        row["error"] = f"{type(err).__name__}: {str(err).splitlines()[0]}"
    return row


def _fill(row: dict[str, Any], instance: Instance) -> None:
    context, place = instance.context(), instance.place()
    if place is None:
        ingest = assembly.located(instance.ingest(), context)
        place = ingest.delta_location, ingest.checkpoint
    location, checkpoint = place
    log = assembly.open_log(location, checkpoint, storage_conn_id=context.storage_conn_id)
    table = canonical_uri(location)
    row.update(table=table, checkpoint=log.location)
    is_of_intervals = instance.mode == "data_interval"
    args = Namespace(delta_location=location, engine=None, storage_conn_id=context.storage_conn_id)
    if is_of_intervals and (states := targets.interval_states(args, table, log)):
        _fill_from_intervals(row, states)
        return
    ingest = instance.ingest()
    if is_of_intervals:
        row["state"] = "refused"
        _check_first_interval(ingest, table, log, targets.engine_of(args, log))
        row["state"] = "not begun"
        return
    execution, request, _ = assembly.assemble(ingest, context)
    view = read_log(execution.log, execution.audit, execution.engine, table, history=False)
    commit = view.last_commit
    row["committed"] = commit and f"batch {commit.seq} at {iso_time(commit.committed_at_ms)}"
    row["open"] = [str(entry.seq) for entry in view.open]
    row["state"] = "refused"
    execution.check(request, view)
    check_decided(view, table)
    if view.newest:
        row["lag"] = _lag_of_source(execution, request, view)
    row["state"] = "open" if view.open else "committed" if view.pipeline else "not begun"


def _fill_from_intervals(row: dict[str, Any], states: Mapping[Window, IntervalState]) -> None:
    row["open"] = [f"{window.name}/{entry.seq}" for window, state in states.items() for entry in state.open]
    row["state"] = "refused"
    for window, state in states.items():
        if state.error:
            state.error.what = f"{window.name}: {state.error.what}"
            raise state.error
    row["state"] = "open" if row["open"] else "committed"


def _check_first_interval(ingest: Ingest, table: str, log: CheckpointLog, engine: Engine) -> None:
    """Refuse a table with rows that no record explains, as the run of a first interval does.

    :raises UnknownRowsError: The table has such rows.
    """
    any_interval = IntervalLog(log.storage, log.location, Window(0, 1))
    is_allowed = isinstance(ingest.write, Replace) or ingest.first_run == "add"
    # A cursor begins at the start of the interval, which says what is new.
    is_checked = isinstance(ingest.source, FileSource) and not is_allowed
    if is_checked and first_run.table_of_others(any_interval, engine, table):
        raise recovery.rows_of_others(table, log.location, FileSlice.kind, any_interval.window.name)


def _lag_of_source(execution: MicroBatchExecution, request: Request, view: LogView) -> str | None:
    """Say how far the table is behind its feed. A source that is not a Delta table is not read.

    :raises ScopeProviderError: The next run refuses the source.
    """
    source = execution.source
    if not view.open:
        execution.check_state(request, view, refresh=request.refresh)
    if not isinstance(source, ChangeRows) and not (isinstance(source, CursorRows) and source.is_pinned):
        return None
    report = source.begin_report(clock.now_ms())
    source.discover(request, view, report)
    if not request.replaces_table:
        for entry in view.outcomes(view.open).waiting:
            source.state_behind(entry)
    if not view.open:
        execution.pending(request, view, report, refresh=request.refresh)
    lag, _ = source.unread(view, clock.now_ms()) if isinstance(source, ChangeRows) else (None, ())
    return lag.text(source.table) if lag else None


def _last_run(instance: Instance) -> str | None:
    """Give the state of the newest run of a task from Airflow's database."""
    from airflow.models.taskinstance import TaskInstance as TI  # noqa: N817, PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    this_task = (TI.dag_id == instance.dag.dag_id, TI.task_id == instance.task.task_id)
    has_run = (TI.map_index == instance.map_index, TI.start_date.is_not(None))
    query = select(TI.state).where(*this_task, *has_run)
    with create_session() as session:
        state = session.scalar(query.order_by(TI.start_date.desc()).limit(1))
    return None if state is None else str(state)
