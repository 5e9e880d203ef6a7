"""What the arguments of a command name: a table's pipeline and its engine, or a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_scope.cli import intervals, scope_jobs
from airflow_provider_scope.cli.output import quiet, say
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from airflow_provider_scope.storage.opening import canonical_uri

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.engines.assembly import RunContext
    from airflow_provider_scope.engines.scope import ScopeRunner
    from airflow_provider_scope.engines.spark import SparkRunner
    from airflow_provider_scope.specs.ingest import Ingest


def opened(args: Namespace) -> tuple[str, CheckpointLog, AuditFiles]:
    """Give the table, the log and the audit files for a command that names a table."""
    checkpoint = Checkpoint(location=args.checkpoint)
    log = assembly.open_log(
        args.delta_location, checkpoint, intervals.named(args), storage_conn_id=args.storage_conn_id
    )
    return canonical_uri(args.delta_location), log, assembly.audit_files(log, checkpoint)


def engine_of(args: Namespace, log: CheckpointLog) -> SparkRunner | ScopeRunner:
    """Give the engine that is named; without a name, SCOPE if a batch of the pipeline ever was a job."""
    if args.engine == "scope" or (args.engine is None and log.has_attempts()):
        table = canonical_uri(args.delta_location)
        return scope_jobs.runner(args.scope_conn_id, log, table, args.storage_conn_id)
    raw: dict[str, Any] = dict.fromkeys(ARGUMENTS)
    raw.update(
        delta_location=args.delta_location,
        sql=SELECT_ALL,
        write="append",
        source={"roots": ["/"], "format": "parquet"},
        engine={"spark_conn_id": getattr(args, "spark_conn_id", None)},
        full_refresh=False,
    )
    ingest = ingest_from(raw)
    if ingest is None:
        msg = "the arguments of a command hold no templates"
        raise AssertionError(msg)
    runner = assembly.spark_runner(ingest, log, log_file(), args.storage_conn_id)
    runner.report = say
    return runner


def log_file() -> Path:
    """Give the file for Spark's output, beside Airflow's own logs."""
    return Path(conf.get("logging", "base_log_folder"), "airflow_provider_scope", "commands", "spark.log")


def of_task(args: Namespace) -> tuple[Ingest, RunContext]:
    """Give the arguments of a task and what a run of it has to know.

    :raises InputError: The task is of another kind, or has values that only a run knows.
    """
    # Airflow's Dag machinery is slow to load, and the other commands do without it.
    from airflow.utils.cli import get_bagged_dag  # noqa: PLC0415

    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator  # noqa: PLC0415

    with quiet(but=args.verbose):
        dag = get_bagged_dag(args.bundle_name, args.dag_id)
    task = dag.get_task(args.task_id)
    if not isinstance(task, DeltaIncrementalIngestOperator):
        raise InputError(
            f"The task {args.dag_id}.{args.task_id} is a {type(task).__name__}.",
            kept="everything; nothing was read or written",
            do="name a DeltaIncrementalIngestOperator task that is not mapped",
        )
    context = assembly.RunContext(
        task=f"{args.dag_id}.{args.task_id}",
        table_name=task.task_id,
        log_file=log_file(),
        report=say,
        storage_conn_id=task.storage_conn_id,
    )
    return _rendered(dag, task, args), context


def _rendered(dag: Any, task: Any, args: Namespace) -> Ingest:
    """Give the task's arguments with their templates rendered, as far as that is possible without a run."""
    from airflow.sdk import XComArg  # noqa: PLC0415
    from jinja2 import TemplateError  # noqa: PLC0415

    ingest: Ingest | None = None
    missing = "a result of another task (XComArg)"
    if not any(XComArg.iter_xcom_references([getattr(task, name) for name in ARGUMENTS])):
        try:
            task.render_template_fields({"params": dag.params.dump(), "dag": dag, "task": task})
            ingest = task.ingest()
            window = intervals.named(args)
            if ingest and ingest.mode == "data_interval":
                ingest = replace(ingest, window=window or ingest.window)
        except TemplateError as err:
            missing = f"a value that only a run knows ({err})"
    if ingest is None:
        raise InputError(
            f"An argument of the task {dag.dag_id}.{task.task_id} needs {missing}.",
            kept="everything; nothing was read or written",
            do="a command knows only `params` and `dag`; look at a run's log, or at `airflow scope status`",
        )
    return ingest
