"""What the operators share: their base, the names of arguments, and how errors and results reach Airflow."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_args

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

from airflow_provider_scope import validation
from airflow_provider_scope.columns import is_late
from airflow_provider_scope.links.job import JobLink
from airflow_provider_scope.protocol.commands import Address
from airflow_provider_scope.sources import AnySource
from airflow_provider_scope.specs import Checkpoint, ScopeEngine, SparkEngine, TableSpec
from airflow_provider_scope.specs.ingest import WITH_COLUMNS
from airflow_provider_scope.specs.write import WriteSpec
from airflow_provider_scope.templates import KeepsPlainTexts
from airflow_provider_scope.triggers.job import JobTrigger, is_over

try:
    from airflow.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout
except ImportError:  # Airflow 3.1
    from airflow.exceptions import TaskDeferralError, TaskDeferralTimeout  # type: ignore[no-redef]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow.sdk import Context

    from airflow_provider_scope.exceptions import JobRunningError, ScopeProviderError
    from airflow_provider_scope.specs.ingest import Ingest


PollSeconds = Annotated[float, functools.partial(validation.number, at_least=0.1, whole=False)]


class JobWaitingOperator(KeepsPlainTexts):
    """Base of operators whose tasks defer while a job runs."""

    operator_extra_links = (JobLink(),)

    job_url = ""
    """The address of the newest job, for its button."""
    poll_interval: float | None
    """Seconds between two looks at a job; None is the connection's."""

    @abstractmethod
    def resume(self, context: Context, event: Any = None) -> Any:
        """Go on after a wait in the triggerer; without an event if the trigger was lost."""

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after a trigger that was lost, too: it decided nothing, and its job may be fine."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (TaskDeferralError, TaskDeferralTimeout) as err:
            self.log.warning("the trigger ended with %r; the job is checked again", err)
            return self.resume(context)

    def wait_in_triggerer(
        self,
        running: JobRunningError,
        conn_id: str,
        first_batch: int | None = None,
        storage_conn_id: str | None = None,
    ) -> NoReturn:
        """Free the worker until the job has ended.

        :raises TaskDeferred: Always.
        """
        self.log.info("%s The worker is free until it has ended.", running.what)
        self.defer(
            trigger=JobTrigger(
                conn_id=conn_id,
                job_id=running.job_id,
                poll_interval=self.poll_interval,
                deadline=running.deadline,
                first_batch=first_batch,
                events=running.events,
                storage_conn_id=storage_conn_id if running.events else None,
            ),
            method_name="resume",
        )

    def deadline(self, ti: Any) -> float | None:
        """Return the end of ``execution_timeout``; Airflow does not count while a task is deferred."""
        if self.execution_timeout is None or ti.start_date is None:
            return None
        return float((ti.start_date + self.execution_timeout).timestamp())

    def is_over(self, ti: Any) -> bool:
        """Whether nobody comes back for the job; False if Airflow does not say."""
        if ti is None:
            return False
        try:
            states = ti.get_task_states(
                dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=ti.map_index
            )
        except (AirflowException, RuntimeError, OSError) as err:
            self.log.warning("Airflow does not say whether the task is over: %r", err)
            return False
        return is_over(states, ti.run_id, ti.task_id)


# ---- arguments ----

_SPECS: tuple[tuple[str, type[Any]], ...] = (
    *(("source", spec) for spec in get_args(AnySource)),
    ("table", TableSpec),
    *(("write", spec) for spec in get_args(WriteSpec)),
    *(("engine", spec) for spec in (SparkEngine, ScopeEngine)),
    ("checkpoint", Checkpoint),
)
"""Arguments with specs."""
_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def check_names(operator: type, arguments: Iterable[str]) -> None:
    """Refuse arguments that no class of an operator has; Airflow's own error does not say what may be meant.

    :raises InputError: There is no argument of this name.
    """
    # Airflow gives some of its own, whose names begin with _, to each operator.
    names = [name for name in arguments if not name.startswith("_")]
    accepted = _names(operator)
    elsewhere = _fields() if "source" in accepted else None
    validation.unknown_names(operator.__name__, "argument", names, accepted, elsewhere)


@functools.cache
def _fields() -> dict[str, str]:
    """Return each field of a spec, and how it is written: ``table=TableSpec(schema_evolution=…)``."""
    places: dict[str, list[str]] = {}
    for argument, spec in _SPECS:
        for item in dataclasses.fields(spec):
            places.setdefault(item.name, []).append(f"{argument}={spec.__name__}({item.name}=…)")
    return {name: " or ".join(texts) for name, texts in places.items()}


@functools.cache
def _names(operator: type) -> tuple[str, ...]:
    parameters: dict[str, inspect.Parameter] = {}
    for cls in operator.__mro__:
        if "__init__" in vars(cls):
            parameters |= dict(inspect.signature(vars(cls)["__init__"]).parameters)
    return tuple(
        name for name, parameter in parameters.items() if name != "self" and parameter.kind not in _VARIADIC
    )


def engine_of(task: Any) -> Any:
    """Return the engine of a task; of a mapped one a text, if its instances do not share an engine.

    Airflow asks a mapped task for its buttons, too, which has no arguments of its own.
    """
    if not hasattr(task, "expand_input"):
        return getattr(task, "engine", None)
    expanded = task.expand_input.value
    if not isinstance(expanded, Mapping) or "engine" in expanded:
        return "given to each instance"
    return task.partial_kwargs.get("engine")


def mapped_late(task: Any, map_index: int | None) -> list[str]:
    """Return the arguments whose columns come from an XComArg of ``expand`` or ``expand_kwargs``.

    An instance of a mapped task is made of values: that they were an XCom, only the mapped task knows.
    """
    if map_index is None or map_index < 0 or not task.has_dag():
        return []
    mapped = task.dag.task_dict.get(task.task_id)
    expanded = getattr(getattr(mapped, "expand_input", None), "value", None)
    if isinstance(expanded, list | tuple):  # expand_kwargs([…])
        expanded = expanded[map_index]
    if not isinstance(expanded, Mapping):  # expand_kwargs(XComArg), or nothing is known of it
        return [*WITH_COLUMNS] if expanded is not None else []
    return [name for name in WITH_COLUMNS if is_late(expanded.get(name))]


# ---- errors and results ----


def address_of(
    ingest: Ingest, task: tuple[str, str], map_index: int | None, storage_conn_id: str | None
) -> Address:
    """Collect the options that complete the commands in the error messages of a task.

    :param task: The ids of the Dag and of the task.
    :param map_index: The instance, of a mapped task.
    """
    engine = ingest.engine
    scope = engine if isinstance(engine, ScopeEngine) else None
    return Address(
        table=ingest.delta_location or None,
        task=task,
        map_index=map_index,
        checkpoint=ingest.checkpoint.location,
        interval=ingest.window.name if ingest.window else None,
        storage_conn_id=storage_conn_id,
        spark_conn_id=engine.spark_conn_id if isinstance(engine, SparkEngine) else None,
        scope_conn_id=scope.scope_conn_id if scope else None,
        tag=(scope.job_tag or task[1]) if scope else None,
    )


def fail(err: ScopeProviderError, log: Any) -> NoReturn:
    """Fail the task; the error's own words stand in its log before Airflow's stack, and end it.

    Airflow shows the stack of an exception, and that of each one behind it: sixty lines, none of which
    helps whoever reads them. Where the error was raised is told at debug level.

    :raises AirflowFailException: Another try cannot help.
    :raises ScopeProviderError: The error itself, if it can.
    """
    log.error("%s: %s", type(err).__name__, err)
    log.debug("The task fails with %s", type(err).__name__, exc_info=err)
    if err.is_retryable:
        raise err.with_traceback(None) from None
    raise AirflowFailException(f"{type(err).__name__}: {err}") from None


@contextmanager
def warn_on_failure(log: Any, consequence: str) -> Iterator[None]:
    """Log a failure of the block as a warning. Whether the rows are in the table does not depend on it.

    :param consequence: What the failure means for the user, as the beginning of a sentence.
    """
    try:
        yield
    except Exception as err:  # noqa: BLE001 - whatever it is, it is about words
        log.warning("%s: %s: %s. This changes nothing in the table.", consequence, type(err).__name__, err)


def emit(
    context: Context,
    outlets: Sequence[Any],
    result: Mapping[str, Any],
    *,
    table: str,
    log: Any,
) -> None:
    """Report a run's result with the event of each outlet.

    An asset, and a reference to one, take it as the event's extra. An alias takes an event of the table, if
    there is one. Other things, such as a ``File`` of OpenLineage, have no events.

    :param table: URI of the table.
    """
    for outlet in outlets:
        with warn_on_failure(log, f"The event of the outlet {outlet!r} is without the run's result"):
            if isinstance(outlet, Asset | AssetRef):
                context["outlet_events"][outlet].extra = dict(result)
            elif isinstance(outlet, AssetAlias) and result.get("table_version") is not None:
                _add(context["outlet_events"][outlet], table, dict(result))


def without_assets(outlets: Sequence[Any]) -> list[Any]:
    """Return the outlets that have no events."""
    return [outlet for outlet in outlets if not isinstance(outlet, Asset | AssetRef | AssetAlias)]


def _add(event: Any, table: str, extra: dict[str, Any]) -> None:
    asset = Asset(table)
    try:
        # Two assets cannot have one URI: somebody may have named the table's already.
        event.add(Asset.ref(uri=asset.uri), extra)
    except AirflowRuntimeError as err:
        if err.error.error is not ErrorType.ASSET_NOT_FOUND:
            raise
        event.add(asset, extra)
