"""Whether commits of a table can hold rows that are new to a cursor, by what they say of their files.

What cannot be told for certain counts as new: then the rows are read.
"""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core import cursor as cursors
from airflow_provider_scope.exceptions import CursorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_scope.core.bounds import Bound
    from airflow_provider_scope.core.cursor import CursorRule, CursorState

COMMITS = 100
"""So many at the most are looked at: more are not read faster than the table."""
_ADD_NO_ROW = {"commitInfo", "remove", "txn", "cdc", "domainMetadata"}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz")
_CUT = timedelta(milliseconds=1)
"""Statistics of times may lack what is below it."""


def holds_none(commits: Iterable[bytes], rule: CursorRule, state: CursorState, first: Bound | None) -> bool:
    """Tell whether all that the commits add lies before the first value that a load would read.

    Of text, decimals and floats statistics are cut, rounded, or silent about NaN, so these count as new. Rows
    at the first value may be new, too.

    :param commits: The commits after the one of the state, none left out, as the log has them.
    :param first: Where the user said to begin.
    """
    kind = state.kind or ""
    if kind not in (*_WHOLE, "date", *_TIMES) or rule.missing == "include" or rule.dedup_key == ():
        return False
    try:
        start = cursors.start_of(rule, state, kind, first)
        if start is None:
            return False
        limit = _value(start, kind)
        return all(_is_before(action, rule, limit, kind) for action in _actions(commits))
    except (CursorError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return False


def _actions(commits: Iterable[bytes]) -> Iterable[Mapping[str, Any]]:
    return (json.loads(line) for commit in commits for line in commit.splitlines() if line.strip())


def _is_before(action: Mapping[str, Any], rule: CursorRule, limit: Any, kind: str) -> bool:
    if not action.keys() - _ADD_NO_ROW:
        return True
    if action.keys() != {"add"}:
        return False  # other columns, or something that is not known here
    add = action["add"]
    if add["dataChange"] is False:
        return True  # the rows were there
    stats = json.loads(add["stats"])
    if stats["numRecords"] == 0:
        return True
    nulls = stats["nullCount"][_name(stats["nullCount"], rule.column)]
    if nulls != 0 and rule.missing != "exclude":
        return False
    if nulls == stats["numRecords"]:
        return True
    found = stats["maxValues" if rule.func == "max" else "minValues"]
    value = _value(found[_name(found, rule.column)], kind)
    if kind in _TIMES:
        return bool(value + _CUT <= limit if rule.func == "max" else value - _CUT >= limit)
    return bool(value < limit if rule.func == "max" else value > limit)


def _name(values: Mapping[str, Any], column: str) -> str:
    """Find a column; a field of a struct is none.

    :raises ValueError: There is not exactly one of this name.
    """
    (found,) = (name for name in values if name.lower() == column.lower())
    return found


def _value(said: Any, kind: str) -> Any:
    """Read a value of the column, of the state or of statistics.

    :raises ValueError: It is none.
    """
    if kind in _WHOLE:
        if isinstance(said, (bool, float)):
            raise ValueError(said)
        return int(said)
    if kind == "date":
        return date.fromisoformat(said)
    moment = datetime.fromisoformat(said)
    if (moment.tzinfo is None) is (kind == "timestamp"):
        raise ValueError(said)
    return moment
