"""What the target table looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_scope.specs import validation


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The table, where the SELECT alone does not say it.

    :param columns: Column name -> Spark type, in order. None takes the columns of the SELECT when the
        table is created, and those of the table afterwards.
    :param partition_by: Names of columns of the SELECT; they may be computed there.
    :param properties: Table properties, such as ``{"delta.enableChangeDataFeed": "true"}``.
    :raises InputError: A value is not valid.
    """

    columns: Mapping[str, str] | None = None
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Validate; values that are templates are let through."""
        validation.set_field(self, "partition_by", validation.texts("partition_by", self.partition_by))
        validation.mapping("columns", self.columns)
        validation.mapping("properties", self.properties)
        if isinstance(self.columns, Mapping):
            if not self.columns:
                raise validation.bad("columns", self.columns, "at least one column, or None")
            for name, kind in self.columns.items():
                validation.text(f"columns[{name!r}]", kind)
            lower = {str(name).lower() for name in self.columns}
            for name in () if validation.is_deferred(self.partition_by) else self.partition_by:
                if not validation.is_deferred(name) and name.lower() not in lower:
                    raise validation.bad(
                        "partition_by", name, f"one of the columns {', '.join(self.columns)}"
                    )
        if isinstance(self.properties, Mapping):
            for name in self.properties:
                if name.lower() == "delta.settransactionretentionduration":
                    raise validation.bad(
                        "properties",
                        name,
                        "properties that keep transaction identifiers",
                        "leave it out: a table that forgets them can load a batch twice",
                    )
