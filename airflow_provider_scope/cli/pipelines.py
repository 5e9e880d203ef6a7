"""The command that shows the pipelines of all Dags of this Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.checkpoint.intervals import IntervalLog, known_intervals
from airflow_provider_scope.cli.output import command, quiet
from airflow_provider_scope.cli.tasks import NOT_MAPPED, Instance, instances
from airflow_provider_scope.core.interval import iso_time
from airflow_provider_scope.engines import assembly, clock
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.execution import repair
from airflow_provider_scope.execution.changes import ChangeRows
from airflow_provider_scope.execution.view import check_table, read_log

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from airflow_provider_scope.specs.ingest import Ingest


@command
def list_pipelines(args: Namespace) -> None:
    """Show each pipeline as a row; nothing is written, no source is listed, no JVM is started."""
    from airflow.cli.simple_table import AirflowConsole  # noqa: PLC0415

    with quiet(but=args.verbose):
        rows = [_row(instance) for dag in _dags(args.bundle_name) for instance in instances(dag)]
    AirflowConsole().print_as(rows, args.output)


def _dags(bundle_names: list[str] | None) -> Iterator[Any]:
    """Give the Dags of all bundles, or of those that are named, as their files say now."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager  # noqa: PLC0415
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415

    for bundle in DagBundlesManager().get_all_dag_bundles():  # type: ignore[no-untyped-call] # Airflow's
        if not bundle_names or bundle.name in bundle_names:
            bundle.initialize()
            bag = DagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
            yield from (bag.dags[dag_id] for dag_id in sorted(bag.dags))


def _row(instance: Instance) -> dict[str, Any]:
    """Give what is known of a pipeline; why the rest is not known is its ``error``."""
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
        ingest = assembly.located(instance.ingest(), instance.context())
        _read(row, instance, ingest)
    except (ScopeProviderError, AirflowException) as err:
        row["error"] = f"{type(err).__name__}: {str(err).splitlines()[0]}"
    return row


def _read(row: dict[str, Any], instance: Instance, ingest: Ingest) -> None:
    conn_id = instance.context().storage_conn_id
    log = assembly.open_log(ingest.delta_location, ingest.checkpoint, storage_conn_id=conn_id)
    table = assembly.make_request(ingest).table
    row.update(table=table, checkpoint=log.location)
    if ingest.mode == "data_interval":
        windows = known_intervals(log.storage, log.location)
        open_of = {w.name: repair.open_entries(IntervalLog(log.storage, log.location, w)) for w in windows}
        row["open"] = [f"{name}/{entry.seq}" for name, entries in open_of.items() for entry in entries]
        row["state"] = ("open" if row["open"] else "committed") if windows else "not begun"
        return
    if log.pipeline() is None:
        row["state"] = "not begun"
        return
    execution, _, engine = assembly.assemble(ingest, instance.context())
    view = read_log(execution.log, execution.audit, engine, table, history=False)
    done = view.last_commit
    row["committed"] = done and f"batch {done.seq} at {iso_time(done.committed_at_ms)}"
    row["open"] = [str(entry.seq) for entry in view.open]
    row["state"] = "refused"
    check_table(view, table)
    if isinstance(execution.source, ChangeRows):
        lag, _ = execution.source.unread(view, clock.now_ms())
        row["lag"] = lag.text(execution.source.table) if lag else None
    row["state"] = "open" if view.open else "committed"


def _last_run(instance: Instance) -> str | None:
    """Give the state of the newest run of a task, as Airflow's database has it."""
    from airflow.models.taskinstance import TaskInstance as TI  # noqa: N817, PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    of_task = (TI.dag_id == instance.dag.dag_id, TI.task_id == instance.task.task_id)
    query = select(TI.state).where(*of_task, TI.map_index == instance.map_index, TI.start_date.is_not(None))
    with create_session() as session:
        state = session.scalar(query.order_by(TI.start_date.desc()).limit(1))
    return None if state is None else str(state)
