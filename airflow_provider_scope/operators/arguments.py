"""The arguments of an operator: their names, and what the instances of a mapped task were given."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_scope import validation
from airflow_provider_scope.columns import is_late
from airflow_provider_scope.specs import (
    CdfSource,
    Checkpoint,
    FileSource,
    JdbcSource,
    Merge,
    Replace,
    Scd2,
    ScopeEngine,
    SparkEngine,
    TableSource,
    TableSpec,
)
from airflow_provider_scope.specs.ingest import WITH_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable


SPECS: tuple[tuple[str, type[Any]], ...] = (
    *(("source", spec) for spec in (FileSource, TableSource, JdbcSource, CdfSource)),
    ("table", TableSpec),
    *(("write", spec) for spec in (Replace, Merge, Scd2)),
    *(("engine", spec) for spec in (SparkEngine, ScopeEngine)),
    ("checkpoint", Checkpoint),
)
"""Arguments with specs."""
VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


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
    """Give each field of a spec, and how it is written: ``table=TableSpec(schema_evolution=…)``."""
    places: dict[str, list[str]] = {}
    for argument, spec in SPECS:
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
        name for name, parameter in parameters.items() if name != "self" and parameter.kind not in VARIADIC
    )


def engine_of(task: Any) -> Any:
    """Give the engine of a task, or of all instances of a mapped one; what each is given counts as text.

    Airflow asks a mapped task for its buttons, too, which has no arguments of its own.
    """
    if not hasattr(task, "expand_input"):
        return getattr(task, "engine", None)
    expanded = task.expand_input.value
    if not isinstance(expanded, Mapping) or "engine" in expanded:
        return "given to each instance"
    return task.partial_kwargs.get("engine")


def mapped_late(task: Any, map_index: int | None) -> list[str]:
    """Give the arguments whose columns come from an XComArg of ``expand`` or ``expand_kwargs``.

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
