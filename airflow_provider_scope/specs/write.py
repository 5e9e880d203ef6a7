"""How rows get into the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_scope.specs import validation


@validation.with_known_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Every run reads all files of the source and replaces the table, or a part of it.

    :param where: SQL predicate over the table's columns: the rows it holds for are replaced, and a row
        of the SELECT for which it does not hold is an error. None replaces the whole table.
    """

    where: str | None = None

    def __post_init__(self) -> None:
        """Validate; a template is let through."""
        if self.where is not None:
            validation.text("where", self.where)


Write = Literal["append"] | Replace


def write_from(value: Any) -> Write:
    """Make the write out of what the user wrote: ``"append"``, ``"replace"``, Replace, or its dict.

    :raises InputError: It is none of these.
    """
    if value == "append":
        return "append"
    if value == "replace":
        return Replace()
    if isinstance(value, Replace):
        return value
    if isinstance(value, Mapping):
        return validation.from_dict(Replace, "write", value)
    raise validation.bad("write", value, "'append', 'replace', or Replace(where=…)")
