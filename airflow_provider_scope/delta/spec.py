"""What the target table looks like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from airflow_provider_scope import validation
from airflow_provider_scope.columns import Columns, columns_from
from airflow_provider_scope.expectations import Expectation, rules_from

_RULE = re.compile(r"\w[\w .-]{0,99}")
"""The name of a rule: it stands in messages."""


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The table, where the SELECT alone does not say it.

    :param columns: Column name -> Spark type, in the order of the table; or a list or text, as in
        ``FileSource``. None takes the columns of the SELECT when the table is created, and those of the
        table afterwards.
    :param partition_by: Names of columns of the SELECT; they may be computed there.
    :param properties: Table properties, such as ``{"delta.enableChangeDataFeed": "true"}``.
    :param schema_evolution: What happens with columns and types that the table does not have: "fail", or
        "add" columns, or "widen" types as well.
    :param expect: Name of a rule -> SQL predicate over the columns of the SELECT, or an ``Expectation``. A
        batch with a row for which it is not true (NULL is not) is not committed; with
        ``FileSource(bad_records="quarantine")`` such rows are quarantined.
    :param quarantine: Folder of the Delta table for what is quarantined, on the store of the table. None is
        the table's own folder with ``_quarantine`` appended to its name.
    :raises InputError: A value is not valid.
    """

    columns: Annotated[Columns, columns_from] | None = None
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    schema_evolution: Literal["fail", "add", "widen"] = "fail"
    expect: Annotated[Mapping[str, str | Expectation], rules_from] | None = None
    quarantine: str | None = None

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        self._check_expect()
        self._check_columns()
        self._check_properties()

    def _check_columns(self) -> None:
        if isinstance(self.columns, Mapping):
            if not self.columns:
                raise validation.bad("columns", self.columns, "at least one column, or None")
            lower = {str(name).lower() for name in self.columns}
            for name in () if validation.is_deferred(self.partition_by) else self.partition_by:
                if not validation.is_deferred(name) and name.lower() not in lower:
                    raise validation.bad(
                        "partition_by", name, f"one of the columns {', '.join(self.columns)}"
                    )

    def _check_properties(self) -> None:
        if isinstance(self.properties, Mapping):
            for name, value in self.properties.items():
                if name.lower() == "delta.settransactionretentionduration":
                    raise validation.bad(
                        "properties",
                        name,
                        "properties that keep transaction identifiers",
                        "leave it out: a table that forgets them can load a batch twice",
                    )
                if (
                    name.lower() == "delta.enabletypewidening"
                    and self.schema_evolution == "widen"
                    and not validation.is_deferred(value)
                    and value != "true"
                ):
                    raise validation.bad(
                        f"properties[{name!r}]",
                        value,
                        "'true' with schema_evolution='widen'",
                        "leave it out: it is set when the first column is widened",
                    )

    def _check_expect(self) -> None:
        if not isinstance(self.expect, Mapping):
            return
        if not self.expect:
            raise validation.bad("expect", self.expect, "at least one rule, or None")
        for name in self.expect:
            if not validation.is_deferred(name) and not _RULE.fullmatch(name):
                raise validation.bad(
                    "expect", name, "names of at most 100 letters, digits, spaces, '_', '-' and '.'"
                )
