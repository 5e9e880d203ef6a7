"""The names of an operator's arguments, its own and those of the operators that it is built on."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

from airflow_provider_scope.specs import validation

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def check_names(operator: type, given: Iterable[str]) -> None:
    """Refuse arguments that no class of an operator has; Airflow's own error does not say what may be meant.

    :raises InputError: There is no argument of this name.
    """
    # Airflow gives some of its own, whose names begin with _, to each operator.
    names = [name for name in given if not name.startswith("_")]
    validation.unknown_names(operator.__name__, "argument", names, _names(operator))


@functools.cache
def _names(operator: type) -> tuple[str, ...]:
    found: dict[str, inspect.Parameter] = {}
    for cls in operator.__mro__:
        if "__init__" in vars(cls):
            found |= dict(inspect.signature(vars(cls)["__init__"]).parameters)
    return tuple(name for name, item in found.items() if name != "self" and item.kind not in VARIADIC)
