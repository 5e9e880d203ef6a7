"""Whether a source holds rows that are new to a cursor, told without Spark.

Of a Delta table by what its commits say of their files; of a database by the rows that the next load would
read. What cannot be told for certain counts as new: then Spark reads the rows.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.delta.commit import EXACT_SINCE
from airflow_provider_scope.exceptions import CursorError
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor.bounds import EPOCH
from airflow_provider_scope.sources.cursor.databases import named, postgres_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_provider_scope.delta.commit import DeltaCommit
    from airflow_provider_scope.sources.cursor.bounds import Bound
    from airflow_provider_scope.sources.cursor.spec import Cursor
    from airflow_provider_scope.sources.cursor.state import CursorState


COMMITS = 100
"""Most commits that are read: more of them are not read faster than the table."""
_ADD_NO_ROW = {"commitInfo", "remove", "txn", "cdc", "domainMetadata"}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz")
_CUT = timedelta(milliseconds=1)
"""Statistics of times may lack what is below it."""


def holds_none(
    commits: Iterable[DeltaCommit], cursor: Cursor, state: CursorState, first: Bound | None
) -> bool:
    """Return whether all that the commits add lies before the first value that a load would read.

    Of text, decimals and floats statistics are cut, rounded, or silent about NaN, so these count as new. So
    do times before ``EXACT_SINCE``, unless the first value lies after all of these. Rows at the first value
    may be new, too.

    :param commits: The commits after the one of the state, none left out.
    :param first: Where the user said to begin.
    """
    kind = state.kind or ""
    if (
        kind not in (*_WHOLE, "date", *_TIMES)
        or cursor.on_cursor_value_missing == "include"
        or cursor.dedup_key == ()
    ):
        return False
    try:
        start = cursor_state.earliest_start(cursor, state, kind, first)
        # None is everything that a commit adds; of groups one that is new may be in any file.
        limit = None if start is None else _value(start, kind)
        return all(_is_before(action, cursor, limit, kind) for commit in commits for action in commit.actions)
    except (CursorError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return False


def _is_before(action: Mapping[str, Any], cursor: Cursor, limit: Any, kind: str) -> bool:
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
    if limit is None:
        return False
    nulls = stats["nullCount"][_name(stats["nullCount"], cursor.column)]
    if nulls != 0 and not cursor.excludes_missing:
        return False
    if nulls == stats["numRecords"]:
        return True
    bounds = stats["maxValues" if cursor.is_rising else "minValues"]
    value = _value(bounds[_name(bounds, cursor.column)], kind)
    if kind in EXACT_SINCE and value.year < EXACT_SINCE[kind]:
        return bool(cursor.is_rising and limit.year > EXACT_SINCE[kind])
    if kind in _TIMES:
        return bool(value + _CUT <= limit if cursor.is_rising else value - _CUT >= limit)
    return bool(value < limit if cursor.is_rising else value > limit)


def _name(values: Mapping[str, Any], column: str) -> str:
    """Find a column; a field of a struct is none.

    :raises ValueError: There is not exactly one of this name.
    """
    (match,) = (name for name in values if name.lower() == column.lower())
    return match


def _value(text: Any, kind: str) -> Any:
    """Read a value of the column, of the state or of statistics.

    :raises ValueError: It is none.
    """
    if kind in _WHOLE:
        if isinstance(text, (bool, float)):
            raise ValueError(text)
        return int(text)
    if kind == "date":
        return date.fromisoformat(text)
    moment = datetime.fromisoformat(text)
    if (moment.tzinfo is None) is (kind == "timestamp"):
        raise ValueError(text)
    return moment


# ---- The rows of a database, as its own driver gives them ----
# A row is known by the hash that Spark made of it (``spark.structs.row_hash``). One whose hash is another
# here, as its values look otherwise, counts as new.


_POSTGRES = (*_WHOLE, "date", "timestamp", "timestamp_ntz", "string")
_WHOLE_FLOAT = 1e15
"""Below it, Spark's text of a float that is whole is that of the integer."""


def question(
    database: str, rows_of: str, cursor: Cursor, state: CursorState, first: Bound | None
) -> tuple[str, int] | None:
    """Return the SELECT for the rows that the next load would read, and how many of them to fetch.

    :param database: Its kind: ``postgresql`` or ``sqlite``.
    :param rows_of: The text after FROM.
    :param first: Where the user said to begin.
    :return: None if the answer could not tell whether one of them is new.
    """
    kind = state.kind or ""
    is_compared = (
        cursor.compares and state.dedup == cursor_state.compared_by(cursor) and not state.boundary_folder
    )
    if not is_compared or state.last is None:
        return None
    start = cursor_state.start_of(cursor, state, kind, first)
    if start is None or start != state.since:
        return None  # of rows before that it is not known which are loaded
    name = named(state.column)  # the user may write it in another letter case
    or_condition = "" if cursor.excludes_missing else f" OR {name} IS NULL"
    if database == "postgresql" and (kind in _POSTGRES or kind.startswith("decimal")):
        value, limit = name, postgres_literal(kind, start)
        if kind == "string":
            value = f'{name} COLLATE "C"'
            or_condition += " OR current_setting('server_encoding') <> 'UTF8'"
    elif database == "sqlite" and kind in _WHOLE:
        value, limit = name, start
    elif database == "sqlite" and kind == "string":
        escaped = start.replace("'", "''")
        value, limit = f"CAST({name} AS TEXT) COLLATE BINARY", f"'{escaped}'"
        or_condition += " OR (SELECT encoding FROM pragma_encoding) <> 'UTF-8'"
    else:
        return None  # it compares otherwise than Spark, or may hold NaN
    sign = ">=" if cursor.is_rising else "<="
    count = sum(n for _, _, n in state.boundary_rows) + 1
    return f"SELECT * FROM {rows_of}\nWHERE {value} {sign} {limit}{or_condition}\nLIMIT {count}", count  # noqa: S608 - quoted


def are_known(rows: Sequence[Mapping[str, Any]], cursor: Cursor, state: CursorState) -> bool:
    """Return whether a load of these rows would load none of them, and leave the state as it is.

    :param rows: Column -> value, as ``question`` fetches them.
    """
    loaded = Counter({(cursor_text, row): n for cursor_text, row, n in state.boundary_rows})
    if len(rows) > loaded.total():
        return False
    try:
        fetched = Counter(
            (_value_text(row, cursor.column, state.kind or ""), row_hash(row, cursor)) for row in rows
        )
    except (ValueError, OverflowError):
        return False
    if cursor.dedup_key:
        return fetched.keys() <= loaded.keys()
    values = {cursor_text for cursor_text, _ in fetched}
    return fetched == Counter({mark: n for mark, n in loaded.items() if mark[0] in values})


def row_hash(row: Mapping[str, Any], cursor: Cursor) -> str:
    """Return the hash that Spark makes of a row.

    :raises ValueError: There is none for a value, or two columns have one name.
    """
    names = {name.lower(): name for name in row}
    if len(names) != len(row):
        raise ValueError(*row)
    compared = {name.lower() for name in cursor.dedup_key} if cursor.dedup_key else names.keys()
    if compared - names.keys():
        raise ValueError(*compared)
    texts = {name: _text(row[names[name]]) for name in sorted(compared) if row[names[name]] is not None}
    line = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    return sha256(line.encode()).hexdigest()[: cursor_state.HASH_LENGTH]


def _value_text(row: Mapping[str, Any], column: str, kind: str) -> str:
    """Return the cursor's value as it is in a state."""
    (value,) = (value for name, value in row.items() if name.lower() == column.lower())
    match value:
        case datetime() if kind == "timestamp" and value.tzinfo:
            return _time_text(value.astimezone(UTC).replace(tzinfo=None)) + "Z"
        case datetime() if kind == "timestamp_ntz" and not value.tzinfo:
            return _time_text(value)
        case datetime() | bool():
            raise ValueError(value)
        case date() if kind == "date":
            return value.isoformat()
        case Decimal() if kind.startswith("decimal"):
            return f"{value:f}"
        case int() if kind in _WHOLE:
            return str(value)
        case str() if kind == "string":
            return value
    raise ValueError(value)


def _text(value: Any) -> Any:
    """Return a value as it is in the text that is hashed."""
    if isinstance(value, list):
        return [None if inner is None else _text(inner) for inner in value]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, str)) or type(value).__name__ == "UUID":
        return str(value)
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex().upper()
    if isinstance(value, date):
        return _moment_text(value if isinstance(value, datetime) else datetime.combine(value, time.min))
    if isinstance(value, (float, Decimal)):
        return _number_text(value)
    raise ValueError(type(value).__name__)


def _number_text(value: float | Decimal) -> str:
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if value.is_integer() and abs(value) < _WHOLE_FLOAT:
        return str(int(value))
    return repr(value)  # Java's may look otherwise: then the row counts as new


def _moment_text(moment: datetime) -> str:
    return str((moment - EPOCH) // timedelta(microseconds=1)) if moment.tzinfo else _time_text(moment)


def _time_text(moment: datetime) -> str:
    return moment.isoformat(" ", "microseconds").rstrip("0").rstrip(".")
