"""The tasks of Dag files that load into tables, with all that is known without a run."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, replace
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.cli import targets
from airflow_provider_scope.cli.output import quiet, say, set_address
from airflow_provider_scope.cli.targets import log_file
from airflow_provider_scope.engines.assembly import RunContext
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.specs.ingest import ARGUMENTS
from airflow_provider_scope.validation import from_dict

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from airflow_provider_scope.specs.ingest import Ingest

NOT_MAPPED = -1
"""Airflow's map index of a task that is not mapped."""
_KEPT = "everything; nothing was read or written"
_OF_ANOTHER_TASK = "a result of another task (XComArg)"


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
        """Give ``<dag>.<task>``, with the map index if there is one."""
        index = "" if self.map_index == NOT_MAPPED else f"[{self.map_index}]"
        return f"{self.dag.dag_id}.{self.task.task_id}{index}"

    @property
    def mode(self) -> str:
        """Give the ``mode`` of the task, which is not a template."""
        return str(self._operator().mode)

    def ingest(self) -> Ingest:
        """Give the arguments with their templates rendered.

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
        """Give the table and the checkpoint; None if only a run or a connection says where they are."""
        try:
            arguments = self._render(self._operator(), "delta_location", "checkpoint")
        except InputError:
            return None
        checkpoint = from_dict(Checkpoint, "checkpoint", arguments["checkpoint"] or {})
        return (arguments["delta_location"], checkpoint) if arguments["delta_location"] else None

    def _render(self, operator: Any, *names: str) -> dict[str, Any]:
        """Give some arguments with their templates rendered.

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
        return rendered

    def _template_context(self, operator: Any) -> dict[str, Any]:
        """Give what templates can use without a run."""
        return {"params": self.dag.params.dump(), "dag": self.dag, "task": operator}

    def context(self) -> RunContext:
        """Give what the task contributes to a run."""
        operator = self._operator()
        return RunContext(
            task=f"{self.dag.dag_id}.{self.task.task_id}",
            # The instances of a mapped task have one id, and must not share a table by accident.
            table_name="" if _is_mapped(self.task) else self.task.task_id,
            log_file=log_file(),
            report=say,
            storage_conn_id=operator.storage_conn_id,
        )

    def _operator(self) -> Any:
        """Give the operator of the instance.

        :raises InputError: Only a run knows what it is mapped over.
        """
        if not _is_mapped(self.task):
            return self.task
        if mapped_count(self.task) is None:
            raise self._needs("a result of another task (XComArg), over which it is mapped")
        values, _ = self.task.expand_input.resolve({"ti": SimpleNamespace(map_index=self.map_index)})
        return self.task.unmap(values)

    def _needs(self, missing: str) -> InputError:
        return InputError(
            f"An argument of the task {self.name} needs {missing}.",
            kept=_KEPT,
            do="a command knows only `params` and `dag`; look at a run's log",
        )


def ingest_of_task(args: Namespace) -> tuple[Ingest, RunContext]:
    """Give the arguments of the task that a command names, and the context of a run of it.

    :raises InputError: The task is of another kind, or has values that only a run knows.
    """
    # Airflow's Dag machinery is slow to load, and most commands do not need it.
    from airflow.utils.cli import get_bagged_dag  # noqa: PLC0415

    from airflow_provider_scope.operators.reporting import address_of  # noqa: PLC0415

    with quiet(verbose=args.verbose):
        dag = get_bagged_dag(args.bundle_name, args.dag_id)
    task = dag.get_task(args.task_id)
    if not _is_ingest(task):
        raise InputError(
            f"The task {args.dag_id}.{args.task_id} is a {type(task).__name__}.",
            kept=_KEPT,
            do="name a task that is a DeltaIncrementalIngestOperator; `airflow scope list` shows them",
        )
    instance = Instance(dag, task, args.map_index, args.full_refresh)
    count = mapped_count(task)
    if count is not None and not 0 <= args.map_index < count:
        raise InputError(
            f"The task {args.dag_id}.{args.task_id} is mapped to {count:,} instances, and "
            f"--map-index={args.map_index} is none of them.",
            kept=_KEPT,
            do=f"name one of them: --map-index 0 to {count - 1}",
        )
    if not _is_mapped(task) and args.map_index != NOT_MAPPED:
        raise InputError(
            f"The task {args.dag_id}.{args.task_id} is not mapped, but has --map-index={args.map_index}.",
            kept=_KEPT,
            do="leave --map-index out",
        )
    ingest, context = instance.ingest(), instance.context()
    map_index = args.map_index if _is_mapped(task) else None
    address = address_of(ingest, (args.dag_id, args.task_id), map_index, context.storage_conn_id)
    set_address(address)
    window = targets.named_interval(args)
    if window and ingest.mode == "data_interval":
        set_address(replace(address, interval=window.name))
        ingest = replace(ingest, window=window)
    return ingest, context


def instances(dag: Any) -> Iterator[Instance]:
    """Give the tasks of a Dag that load into tables. A task comes once if only a run knows its instances."""
    for task in dag.tasks:
        if _is_ingest(task):
            count = mapped_count(task)
            indexes = range(count) if count is not None else [NOT_MAPPED]
            yield from (Instance(dag, task, index) for index in indexes)


def mapped_count(task: Any) -> int | None:
    """Give the number of instances of a mapped task; None if it is not mapped, or only a run knows it."""
    from airflow.sdk import XComArg  # noqa: PLC0415

    if not _is_mapped(task) or any(XComArg.iter_xcom_references(task.expand_input)):
        return None
    mapping = task.expand_input.value
    values = [*mapping.values()] if isinstance(mapping, dict) else [mapping]
    return prod(map(len, values)) if all(isinstance(value, Sized) for value in values) else None


def _is_mapped(task: Any) -> bool:
    return hasattr(task, "expand_input")


def _is_ingest(task: Any) -> bool:
    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator  # noqa: PLC0415

    kind = task.operator_class if _is_mapped(task) else type(task)
    return isinstance(kind, type) and issubclass(kind, DeltaIncrementalIngestOperator)
