"""The tasks of Dag files that load into tables, with all that is known without a run; and their list."""

from __future__ import annotations

import os
import sys
from collections.abc import Sized
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.cli import targets
from airflow_provider_scope.cli.output import command, quiet, say, set_address, show_rows
from airflow_provider_scope.cli.targets import Target
from airflow_provider_scope.engines import assembly, clock, server
from airflow_provider_scope.engines.assembly import RunContext
from airflow_provider_scope.engines.spark import SubmitEngine
from airflow_provider_scope.exceptions import InputError, ScopeProviderError
from airflow_provider_scope.protocol import first_run, recovery
from airflow_provider_scope.protocol.dry_run import InMemory
from airflow_provider_scope.protocol.view import read_log
from airflow_provider_scope.sources.files.source import Files
from airflow_provider_scope.specs import Checkpoint, Replace, SparkEngine
from airflow_provider_scope.specs.ingest import ARGUMENTS
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.validation import from_dict
from airflow_provider_scope.values import Window, iso_time

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping

    from airflow_provider_scope.cli.targets import IntervalState
    from airflow_provider_scope.protocol.run import MicroBatchExecution
    from airflow_provider_scope.protocol.source import Request
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.specs.ingest import Ingest


NOT_MAPPED = -1
"""Airflow's map index of a task that is not mapped."""
_OF_ANOTHER_TASK = "a result of another task (XComArg)"
_KNOWN = "a command knows only `params`, `dag` and `task`; look at a run's log"


def _refusal(message: str, do: str) -> InputError:
    return InputError(message, kept="everything; nothing was read or written", do=do)


@dataclass(frozen=True, slots=True)
class Instance:
    """A task, or an instance of a mapped one."""

    dag: Any
    task: Any
    """The operator, or what Airflow keeps in its place for a mapped task."""
    map_index: int = NOT_MAPPED
    full_refresh: bool = False
    """Load all files again, whatever the task says."""

    @property
    def name(self) -> str:
        index = "" if self.map_index == NOT_MAPPED else f"[{self.map_index}]"
        return f"{self.dag.dag_id}.{self.task.task_id}{index}"

    @property
    def mode(self) -> str:
        return str(self._operator().mode)

    def ingest(self) -> Ingest:
        """Return all arguments, with their templates rendered.

        :raises InputError: A value is not valid, or only a run knows it.
        """
        operator = self._operator()
        if self.full_refresh:
            operator.full_refresh = True
        # Airflow's own rendering logs failures with a stack trace, so templates are tried here first.
        self._render(operator, *ARGUMENTS)
        operator.render_template_fields(
            self._template_context(operator), self.task.get_template_env(self.dag)
        )
        ingest: Ingest | None = operator.ingest()
        if ingest is None:
            raise self._needs(_OF_ANOTHER_TASK)
        return ingest

    def place(self) -> tuple[str, Checkpoint] | None:
        """Return the table and the checkpoint; None if only a run or a connection says where they are."""
        try:
            arguments = self._render(self._operator(), "delta_location", "checkpoint")
        except InputError:
            return None
        checkpoint = from_dict(Checkpoint, "checkpoint", arguments["checkpoint"] or {})
        return (arguments["delta_location"], checkpoint) if arguments["delta_location"] else None

    def _render(self, operator: Any, *names: str) -> dict[str, Any]:
        """Render the templates in some arguments.

        :raises InputError: Only a run knows one of them.
        """
        from airflow.sdk import XComArg  # noqa: PLC0415
        from jinja2 import TemplateError  # noqa: PLC0415

        values = {name: getattr(operator, name) for name in names}
        if any(XComArg.iter_xcom_references([*values.values()])):
            raise self._needs(_OF_ANOTHER_TASK)
        env = self.task.get_template_env(self.dag)
        try:
            rendered: dict[str, Any] = operator.render_template(values, self._template_context(operator), env)
        except TemplateError as err:
            raise self._needs(f"a value that only a run knows ({err})") from None
        except Exception as err:  # noqa: BLE001 - whatever it is, it is raised by the user's own expression
            message = (
                f"A template in an argument of the task {self.name} fails with {type(err).__name__}: {err}."
            )
            raise _refusal(message, _KNOWN) from None
        return rendered

    def _template_context(self, operator: Any) -> dict[str, Any]:
        """Return what templates can use without a run."""
        params = _defaults(self.dag.params) | _defaults(operator.params)
        context = {"params": params, "dag": self.dag, "task": operator}
        return context if self.map_index == NOT_MAPPED else {**context, "ti": self._ti}

    @property
    def _ti(self) -> Any:
        """What a run has as the instance of the task, as far as it is known without one."""
        return SimpleNamespace(map_index=self.map_index)

    def context(self) -> RunContext:
        operator = self._operator()
        return RunContext(
            task=f"{self.dag.dag_id}.{self.task.task_id}",
            task_id=self.task.task_id,
            # The instances of a mapped task have one id, and must not share a table by accident.
            table_name="" if _is_mapped(self.task) else self.task.task_id,
            log_file=targets.log_file(),
            report=say,
            storage_conn_id=operator.storage_conn_id,
        )

    def _operator(self) -> Any:
        """Return the operator of the instance.

        :raises InputError: Only a run knows what it is mapped over.
        """
        if not _is_mapped(self.task):
            return self.task
        if mapped_count(self.task) is None:
            raise self._needs("a result of another task (XComArg), over which it is mapped")
        if not hasattr(self.task, "expand_input"):  # its group is mapped
            return copy(self.task)
        values, _ = self.task.expand_input.resolve({"ti": self._ti})
        return self.task.unmap(values)

    def _needs(self, missing: str) -> InputError:
        return _refusal(f"An argument of the task {self.name} needs {missing}.", _KNOWN)


def _defaults(params: Any) -> dict[str, Any]:
    """Return the params that have a default, by their names; the others have a value in a run alone."""
    defaults = {}
    for name, param in params.items():
        with suppress(AirflowException):
            defaults[name] = param.resolve()
    return defaults


def ingest_of_task(args: Namespace) -> tuple[Ingest, RunContext]:
    """Return the arguments of the task that a command names, and the context of a run of it.

    :raises InputError: The task is of another kind, or has values that only a run knows.
    """
    # Airflow's Dag machinery is slow to load, and most commands do not need it.
    from airflow_provider_scope.operators.base import address_of  # noqa: PLC0415

    with quiet(verbose=args.verbose):
        dag = find_dag(args.bundle_name, args.dag_id)
    task, name = dag.get_task(args.task_id), f"{args.dag_id}.{args.task_id}"
    if not _is_ingest(task):
        raise _refusal(
            f"The task {name} is a {type(task).__name__}.",
            "name a task that is a DeltaIncrementalIngestOperator; `airflow scope list` shows them",
        )
    count = mapped_count(task)
    if count is not None and not 0 <= args.map_index < count:
        raise _refusal(
            f"The task {name} is mapped to {count:,} instances, and --map-index={args.map_index} is none of "
            "them.",
            f"name one of them: --map-index 0 to {count - 1}"
            if count
            else "nothing: a run of it loads nothing",
        )
    is_mapped = _is_mapped(task)
    if not is_mapped and args.map_index != NOT_MAPPED:
        raise _refusal(
            f"The task {name} is not mapped, but has --map-index={args.map_index}.", "leave --map-index out"
        )
    instance = Instance(dag, task, args.map_index, getattr(args, "full_refresh", False))
    ingest, context = instance.ingest(), instance.context()
    map_index = args.map_index if is_mapped else None
    address = address_of(ingest, (args.dag_id, args.task_id), map_index, context.storage_conn_id)
    set_address(address)
    window = targets.named_interval(args)
    if window and ingest.mode != "data_interval":
        raise _refusal(
            f"The task {name} loads no intervals, but has --interval={window.name}.", "leave --interval out"
        )
    if window:
        set_address(replace(address, interval=window.name))
        ingest = replace(ingest, window=window)
    return ingest, context


def instances(dag: Any) -> Iterator[Instance]:
    """Return the tasks of a Dag that load into tables; one comes once if only a run knows its instances."""
    for task in dag.tasks:
        if _is_ingest(task):
            count = mapped_count(task)
            indexes = range(count) if count is not None else [NOT_MAPPED]
            yield from (Instance(dag, task, index) for index in indexes)


def mapped_count(task: Any) -> int | None:
    """Return the number of instances of a mapped task; None if it is not mapped, or only a run knows it."""
    from airflow.sdk import XComArg  # noqa: PLC0415

    expand_input = _expand_input(task)
    if expand_input is None or any(XComArg.iter_xcom_references(expand_input)):
        return None
    mapping = expand_input.value
    values = [*mapping.values()] if isinstance(mapping, dict) else [mapping]
    return prod(map(len, values)) if all(isinstance(value, Sized) for value in values) else None


def _expand_input(task: Any) -> Any:
    """Return what a task, or the group that it is in, is mapped over; None if it is not mapped."""
    group = task.get_closest_mapped_task_group()
    return group._expand_input if group else getattr(task, "expand_input", None)  # noqa: SLF001 - no other way


def _is_mapped(task: Any) -> bool:
    return _expand_input(task) is not None


def _is_ingest(task: Any) -> bool:
    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator  # noqa: PLC0415

    kind = task.operator_class if hasattr(task, "expand_input") else type(task)
    return isinstance(kind, type) and issubclass(kind, DeltaIncrementalIngestOperator)


# ---- the command that lists them ----


@command
def list_pipelines(args: Namespace) -> None:
    """Show each pipeline as a row; nothing is written, no source is listed, no JVM is started."""
    with quiet(verbose=args.verbose):
        bags = _bags(args.bundle_name)
        dags = (bag[dag_id] for bag in bags for dag_id in sorted(bag))
        rows = [_row(instance) for dag in dags for instance in instances(dag)]
    show_rows(rows, args.output)


def find_dag(bundle_names: list[str] | None, dag_id: str) -> Any:
    """Read a Dag from its file. Airflow's own function for that needs its database, which a task has not.

    :raises InputError: No bundle has it.
    """
    for bag in _bags(bundle_names):
        if dag_id in bag:
            return bag[dag_id]
    raise _refusal(
        f"There is no Dag {dag_id}: no bundle{f' of {bundle_names}' if bundle_names else ''} has it, or its "
        "file has an error.",
        f"correct the id, or the file of {dag_id}: `airflow dags list-import-errors` shows its error",
    )


def _bags(bundle_names: list[str] | None) -> Iterator[dict[str, Any]]:
    """Read the Dags of each bundle, or of each named one, from their files: id -> Dag.

    :raises InputError: There is no bundle of a name.
    """
    from airflow.dag_processing.bundles.manager import DagBundlesManager  # noqa: PLC0415
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415

    bundles = {bundle.name: bundle for bundle in DagBundlesManager().get_all_dag_bundles()}  # type: ignore[no-untyped-call] # Airflow's
    if unknown := [name for name in bundle_names or () if name not in bundles]:
        raise _refusal(
            f"There is no Dag bundle {unknown[0]}.", f"correct --bundle-name: there are {', '.join(bundles)}"
        )
    for bundle in bundles.values():
        if not bundle_names or bundle.name in bundle_names:
            bundle.initialize()
            if str(bundle.path) not in sys.path:
                sys.path.append(str(bundle.path))  # Dag files import modules from beside them
            yield DagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name).dags


def _row(instance: Instance) -> dict[str, Any]:
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
        first_line, *_ = str(err).splitlines() or [""]
        row["error"] = f"{type(err).__name__}: {first_line}"
        if isinstance(err, ScopeProviderError) and err.is_retryable:
            row["state"] = "unknown"  # what could not be read refuses nothing
    return row


def _fill(row: dict[str, Any], instance: Instance) -> None:
    context, place = instance.context(), instance.place()
    if place is None:
        ingest = assembly.located(instance.ingest(), context)
        place = ingest.delta_location, ingest.checkpoint
    location, checkpoint = place
    conn_id = context.storage_conn_id
    target = Target(
        table=canonical_uri(location),
        log=assembly.open_log(location, checkpoint, storage_conn_id=conn_id),
        storage_conn_id=conn_id,
    )
    row.update(table=target.table, checkpoint=target.log.location)
    is_of_intervals = instance.mode == "data_interval"
    if is_of_intervals and (states := target.interval_states()):
        _fill_from_intervals(row, states)
        return
    ingest = instance.ingest()
    if is_of_intervals:
        row["state"] = "refused"
        _check_first_interval(ingest, target)
        row["state"] = "not begun"
        return
    execution, request, _ = assembly.assemble(ingest, context)
    view = read_log(execution.log, execution.engine, target.table)
    commit = view.last_commit
    row["committed"] = commit and f"batch {commit.seq} at {iso_time(commit.committed_at_ms)}"
    row["open"] = [str(entry.seq) for entry in view.open]
    row["state"] = "refused"
    if view.is_first:
        execution.log.storage = InMemory(execution.log.storage)
        execution.open(request)
    else:
        execution.check(request, view)
    view.check_decided()
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


def _check_first_interval(ingest: Ingest, target: Target) -> None:
    """Refuse a table with rows that no record explains, as the run of a first interval does.

    :raises UnknownRowsError: The table has such rows.
    """
    window = Window(0, 1)  # which interval it is says nothing
    first = target.of_interval(window)
    is_allowed = isinstance(ingest.write, Replace) or ingest.first_run == "add"
    # A cursor begins at the start of the interval, which says what is new.
    is_checked = ingest.source.file_roots and not is_allowed
    if is_checked and first_run.table_of_others(first.log, first.engine(), target.table):
        raise recovery.rows_of_others(target.table, target.log.location, Files.begins_after, window.name)


def _lag_of_source(execution: MicroBatchExecution, request: Request, view: LogView) -> str | None:
    """Describe how far the table is behind its feed. A source that is not a Delta table is not read.

    :raises ScopeProviderError: The next run refuses the source.
    """
    source = execution.source
    if not view.open:
        execution.check_state(request, view, refresh=request.refresh)
    if not source.is_pinned:
        return None
    report = source.begin_report(clock.now_ms())
    source.discover(request, view, report)
    if not request.replaces_table:
        for entry in view.outcomes(view.open).waiting:
            source.state_after(entry)
    if not view.open:
        source.pending(view, report, refresh=request.refresh)
    return source.lag_text(view, clock.now_ms())


def _last_run(instance: Instance) -> str | None:
    """Return the state of the newest run of a task from Airflow's database."""
    from airflow.models.taskinstance import TaskInstance as TI  # noqa: N817, PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    this_task = (TI.dag_id == instance.dag.dag_id, TI.task_id == instance.task.task_id)
    has_run = (TI.map_index == instance.map_index, TI.start_date.is_not(None))
    query = select(TI.state).where(*this_task, *has_run)
    with create_session() as session:
        state = session.scalar(query.order_by(TI.start_date.desc()).limit(1))
    return None if state is None else str(state)


# ---- the commands for a Spark that stays on this machine ----


@command
def start_server(args: Namespace) -> None:
    """Become the server that the runs of a task use; it stays until it is stopped."""
    ingest, context = ingest_of_task(args)
    is_spark = isinstance(ingest.engine, SparkEngine)
    engine = assembly.spark_engine(*assembly.placed(ingest, context), context) if is_spark else None
    if not isinstance(engine, SubmitEngine):
        raise InputError(
            f"The task {context.task} starts no Spark on this machine.",
            kept="everything; nothing was started",
            do="name a task whose SparkEngine runs in local mode, or in client mode on a cluster",
        )
    words, variables = engine.server_command()
    say(f"Spark for the runs of {context.task}")
    sys.stdout.flush()
    os.execvpe(words[0], words, variables)  # noqa: S606


@command
def list_servers(args: Namespace) -> None:
    rows = [
        {
            "server": state.name,
            "pid": str(state.pid),
            "started_for": state.task,
            "master": state.master,
            "started": iso_time(state.started_ms),
            "runs": str(state.runs),
            "memory": f"{state.used_mb:,} of {state.max_mb:,} MiB",
        }
        for state in server.servers()
    ]
    show_rows(rows, args.output)


@command
def stop_server(args: Namespace) -> None:
    """End a server, and see that it has ended."""
    states = {state.name: state for state in server.servers()}
    if args.server not in states:
        raise InputError(
            f"No Spark server {args.server} of this user runs on this machine.",
            kept="the servers that run",
            do="take a name from `airflow scope spark-server list`",
        )
    server.end(states[args.server], say)
    say(f"{args.server} has ended")
