"""What the instances of a mapped task were given by other tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_scope.specs.columns import is_late
from airflow_provider_scope.specs.ingest import WITH_COLUMNS


def engine_of(task: Any) -> Any:
    """Give the engine of a task, or of all instances of a mapped one; what each is given counts as text.

    Airflow asks a mapped task for its buttons, too, which has no arguments of its own.
    """
    if not hasattr(task, "expand_input"):
        return getattr(task, "engine", None)
    given = task.expand_input.value
    if not isinstance(given, Mapping) or "engine" in given:
        return "given to each instance"
    return task.partial_kwargs.get("engine")


def mapped_late(task: Any, map_index: int | None) -> list[str]:
    """Give the arguments whose columns come from an XComArg of ``expand`` or ``expand_kwargs``.

    An instance of a mapped task is made of values: that they were an XCom, only the mapped task knows.
    """
    if map_index is None or map_index < 0 or not task.has_dag():
        return []
    mapped = task.dag.task_dict.get(task.task_id)
    given = getattr(getattr(mapped, "expand_input", None), "value", None)
    if isinstance(given, list | tuple):  # expand_kwargs([…])
        given = given[map_index]
    if not isinstance(given, Mapping):  # expand_kwargs(XComArg), or nothing is known of it
        return [*WITH_COLUMNS] if given is not None else []
    return [name for name in WITH_COLUMNS if is_late(given.get(name))]
