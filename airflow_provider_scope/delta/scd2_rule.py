"""How versions of rows are kept: the rule that users write, and the columns and conditions made of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VALID_FROM, VALID_TO, ROW_HASH = "_valid_from", "_valid_to", "_row_hash"
FAR = "2200-01-01T00:00:00+00:00"
"""No version ends at or after this time; where one does, somebody marks the active version in this way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scd2Rule:
    """Which version of a row is active, and when it is retired; see ``specs.Scd2``."""

    merge_key: tuple[str, ...] = ()
    validity: tuple[str, str] = (VALID_FROM, VALID_TO)
    active_record_timestamp: str | None = None
    boundary_timestamp: str | None = None
    row_version: str | None = None
    on_empty_extract: Literal["ignore", "retire"] = "ignore"

    @property
    def version(self) -> str:
        """The column whose value tells whether two versions are the same."""
        return self.row_version or ROW_HASH

    @property
    def is_active(self) -> str:
        """The condition that a version of the table is active."""
        column = f"t.{quoted(self.validity[1])}"
        if self.active_record_timestamp is None:
            return f"{column} IS NULL"
        return f"{column} = TIMESTAMP '{self.active_record_timestamp}'"

    def own_columns(self, names: Iterable[str]) -> dict[str, str]:
        """Choose the columns that the write adds to those of the rows: name -> type.

        :raises InputError: The rows have a column of such a name.
        """
        existing = {name.lower(): name for name in names}
        for name in self.validity:
            if name.lower() in existing:
                raise _name_conflict(
                    existing[name.lower()], "rename it in `sql`, or set other validity_column_names"
                )
        own = dict.fromkeys(self.validity, "timestamp")
        if self.version.lower() not in existing:
            own[self.version] = "string"
        elif self.row_version is None:
            raise _name_conflict(
                existing[ROW_HASH],
                f"rename it in `sql`; or set row_version_column_name={ROW_HASH!r} if it is what identifies "
                "the versions of a row",
            )
        return own


def _name_conflict(name: str, do: str) -> InputError:
    return InputError(
        f"The SELECT has a column {name!r}, which Scd2 writes itself.",
        kept="everything; nothing was written",
        do=do,
    )


def refuse_without_versions(lacking: Iterable[str], table: str) -> None:
    """Refuse rows of another kind of write for a table of versions: they would have no time of validity.

    :param lacking: Columns of the table that the rows do not have.
    :raises InputError: The rows lack all columns that ``Scd2`` adds. A table in which these have other names
        is not recognized.
    """
    own = [VALID_FROM, VALID_TO, ROW_HASH]
    if {*own} <= {*lacking}:
        raise InputError(
            f"The table {table} keeps versions of rows, but the rows to write have no {', '.join(own)}.",
            kept=NO_ROW_WRITTEN,
            do="use write=Scd2(…), as when the table was written; or write to another table",
        )


def without_versions(table: str, missing: Iterable[str]) -> InputError:
    """Make the error for a table whose rows lack the columns of versions, so that none could be retired."""
    return InputError(
        f"The table {table} has rows, but lacks the columns for their versions: {', '.join(missing)}.",
        kept=NO_ROW_WRITTEN,
        do="run once with full_refresh=True, which starts the history with the rows that it loads; or "
        "write to another table",
    )


def rule_from(value: Mapping[str, Any]) -> Scd2Rule:
    """Read a rule from its dict in a plan file."""
    first, second = value.get("validity_column_names") or (VALID_FROM, VALID_TO)
    return Scd2Rule(
        merge_key=tuple(value.get("merge_key") or ()),
        validity=(first, second),
        active_record_timestamp=value.get("active_record_timestamp"),
        boundary_timestamp=value.get("boundary_timestamp") or value.get("now"),
        row_version=value.get("row_version_column_name"),
        on_empty_extract=value.get("on_empty_extract") or "ignore",
    )


def instant(value: str | date) -> str:
    """Write an instant as text with its offset; a time without zone is in UTC, a date is its first instant.

    :raises TypeError: The value is of another type.
    :raises ValueError: The text is neither a date nor a time.
    """
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, date):
        raise TypeError(type(moment).__name__)
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)).isoformat()
