"""Which source, write, mode, engine and arguments do not go together, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from airflow_provider_scope import validation
from airflow_provider_scope.columns import INFER
from airflow_provider_scope.delta.write_rules import Merge, Replace, Scd2
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources import AnySource
from airflow_provider_scope.sources.cursor.spec import JdbcSource, TableSource
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.specs.engine import ScopeEngine, SparkEngine
from airflow_provider_scope.specs.write import WriteSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

GIVEN = object()
"""Any value but nothing, 0 and False; also one that is known only when the task runs."""


class Case(NamedTuple):
    """An argument, or a field as ``source.columns``, and its value: any, a type, one of two, or ``GIVEN``."""

    argument: str
    value: Any
    text: str = ""
    """How a message about another argument names this case."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Two cases that do not go together."""

    beside: Case
    refused: Case
    do: str
    expected: str = ""
    """What is expected of ``refused``; empty: nothing is wrong with it, but SCOPE jobs cannot do it."""
    only: type[Any] | None = None
    """The kind of write to which the refusal applies; None: any."""


def _unwanted(  # noqa: PLR0917 - a row of a table
    beside: Case, argument: str, value: Any, expected: str, why: str, only: type[Any] | None = None
) -> Refusal:
    """Refuse a value that is best left out."""
    do = f"leave it out: {why}"
    return Refusal(beside, Case(argument, value), do, f"{expected} with {beside.text}", only)


_SPARK = Case("engine", SparkEngine, "SparkEngine")
_SCOPE = Case("engine", ScopeEngine, "ScopeEngine")
_INTERVAL = Case("mode", "data_interval", 'mode="data_interval"')
_INCREMENTAL = Case("mode", "incremental", 'mode="incremental"')
_REPLACE = Case("write", Replace, "write='replace' or Replace(where=...)")
_RANGED = Case("source.cursor.end_value", GIVEN, "cursor.end_value")
_RANGE = Case("write.where", GIVEN, "Replace(where=...)")
_NEW_FILES = 'each run takes what is new; or set mode="data_interval"'
_ON_SPARK = "leave it out; or engine=SparkEngine()"

_CURSOR = Case("source", TableSource | JdbcSource, "a cursor")
_FEED = Case("source", CdfSource, "a CdfSource")

TOGETHER = (
    *(
        Refusal(
            _SCOPE,
            Case("source", kind),
            "use engine=SparkEngine(): SCOPE jobs read files",
            "a FileSource with ScopeEngine",
        )
        for kind in get_args(AnySource)
        if kind is not FileSource
    ),
    _unwanted(
        _SPARK, "sql_dialect", "scope", "'spark' or None", "the types of the columns are those of Spark"
    ),
    Refusal(
        _SPARK,
        Case("delta_location", None),
        "set it; only the connection of a ScopeEngine can say where tables are",
        "the table's folder: an absolute path or a file:///… URI",
    ),
    Refusal(
        _SPARK,
        Case("source.format", "sstream"),
        "name the format of the files: 'parquet', 'csv', 'json', 'text', 'orc' or 'avro'. 'sstream' is the "
        "default, for structured streams, which only SCOPE reads",
        "a format that Spark reads",
    ),
    _unwanted(_INCREMENTAL, "window_start", GIVEN, "None", _NEW_FILES),
    _unwanted(_INCREMENTAL, "window_end", GIVEN, "None", _NEW_FILES),
    Refusal(
        _SCOPE,
        _INTERVAL,
        "load intervals with SparkEngine(): SCOPE jobs that write one table at the same time cannot be "
        "distinguished in its log",
        "'incremental' with ScopeEngine",
    ),
    _unwanted(
        _INTERVAL,
        "full_refresh",
        GIVEN,
        "False",
        "it would replace the whole table with the files of one interval. To load an interval again, use "
        "write=Replace(where=…) with the interval's rows, and clear its run",
    ),
    Refusal(
        _INTERVAL,
        Case("write", Replace()),
        "name the rows of the interval, with a template: "
        "Replace(where=\"day = '{{ data_interval_start.date() }}'\")",
        '"append" or Replace(where=…) with mode="data_interval"',
    ),
    _unwanted(_INTERVAL, "max_batches_per_run", GIVEN, "None", "no later run would load the rest"),
    _unwanted(_INTERVAL, "source.starting_timestamp", GIVEN, "None", "the interval says which files count"),
    Refusal(
        _INTERVAL,
        Case("source.columns", INFER),
        "declare them: the types would be inferred for each interval alone, and could disagree",
        'declared columns or None with mode="data_interval"',
    ),
    _unwanted(_INTERVAL, "source.late_files", "skip", "'ingest'", "a cleared run has to find late files"),
    *(
        _unwanted(_INTERVAL, f"source.cursor.{name}", GIVEN, "None", "the interval says which rows count")
        for name in ("initial_value", "end_value", "per")
    ),
    _unwanted(
        _INTERVAL,
        "source.cursor.range_start",
        "open",
        "'closed'",
        "an interval has its start, and not its end, so that each row is in one",
    ),
    _unwanted(
        _INTERVAL,
        "source.cursor.last_value_func",
        "min",
        "'max'",
        "an interval is loaded from its start to its end",
    ),
    _unwanted(_INTERVAL, "source.max_rows_per_batch", GIVEN, "None", "an interval is one batch"),
    _unwanted(_RANGED, "source.max_rows_per_batch", GIVEN, "None", "a range is one batch"),
    Refusal(
        _CURSOR,
        Case("write.merge_key", ()),
        "name the columns that identify a record: a load has only the new rows, and all others would be "
        "retired",
        "the columns of a key with Scd2 and a cursor",
        only=Scd2,
    ),
    *(
        Refusal(
            _INTERVAL,
            Case("source", kind),
            'use mode="incremental": the source is not read by time, and each run takes what is new',
            'a FileSource, a TableSource or a JdbcSource with mode="data_interval"',
        )
        for kind in get_args(AnySource)
        if kind not in (FileSource, TableSource, JdbcSource)
    ),
    Refusal(
        Case("source.full_load", False, "a CdfSource without full_load"),  # noqa: FBT003 - a value
        Case("write", Replace),
        "set full_load=True in the source, so that each run takes all its rows; or use Merge, which takes "
        "changes",
        '"append", Merge(…) or Scd2(…) with a CdfSource that has full_load=False',
    ),
    Refusal(
        _FEED,
        Case("write.primary_key", ()),
        "name the columns that identify a row of the source; without such columns, load the changes with "
        'write="append"',
        "the columns of a key with Merge and a CdfSource",
        only=Merge,
    ),
    _unwanted(
        _FEED, "write.merge_key", GIVEN, "none", "a batch has the rows that changed, not whole groups", Merge
    ),
    _unwanted(
        _FEED,
        "write.sequence_by",
        GIVEN,
        "None",
        "the changes of a feed are loaded in the order of its commits, so the last one counts",
        Merge,
    ),
    Refusal(
        _FEED,
        Case("write.strategy", "insert-only"),
        "use 'delete-insert' or 'upsert'",
        "a strategy that updates and deletes with a CdfSource",
    ),
    Refusal(
        _FEED,
        Case("write.merge_key", ()),
        "name the columns that identify a row of the source: a batch has only the rows that changed, and "
        "all others would be retired",
        "the columns of a key with Scd2 and a CdfSource",
        only=Scd2,
    ),
    Refusal(
        Case("source", FileSource | TableSource | JdbcSource, "a source without commits"),
        Case("write.sequence_by", "commit"),
        "name a column of the rows, such as the time of their last change",
        "the name of a column with a source that is no CdfSource",
        only=Scd2,
    ),
    Refusal(
        Case("source.deletes", "soft", "deletes='soft'"),
        Case("write", Scd2),
        "set deletes='apply': Scd2 keeps the versions of a deleted row, and retires the last one",
        "Merge with deletes='soft'",
    ),
    *(
        Refusal(
            Case("write", "append", 'write="append"'),
            Case("source.deletes", kind),
            "leave it out: every change is added, with its _change_type",
            "'apply' with write=\"append\"",
        )
        for kind in ("ignore", "soft")
    ),
    _unwanted(_REPLACE, "max_batches_per_run", GIVEN, "None", "every run has to load all files"),
    _unwanted(
        _RANGE,
        "full_refresh",
        GIVEN,
        "False",
        "every run loads all files into the range. To replace the whole table, use write='replace' once",
    ),
)
"""What is refused as soon as both cases are known, in the order in which it is said."""

IN_JOBS = (
    Refusal(
        _SCOPE,
        Case("table.columns", None),
        "declare them: table=TableSpec(columns={'name': 'type', …})",
        "the name and type of each column of the table, which SCOPE needs",
    ),
    *(
        Refusal(_SCOPE, case, 'use write="replace" or "append"; or engine=SparkEngine()')
        for case in (_RANGE, *(Case("write", kind) for kind in get_args(WriteSpec) if kind is not Replace))
    ),
    Refusal(_SCOPE, Case("sql_params", GIVEN), "write the values into `sql`, with templates if they change"),
    Refusal(
        _SCOPE,
        Case("table.schema_evolution", "widen"),
        "use 'add', which adds columns and leaves types as they are; or engine=SparkEngine()",
    ),
    Refusal(
        _SCOPE,
        Case("table.expect", GIVEN),
        "leave it out, and select the rows that you want in the WHERE of `sql`; or engine=SparkEngine()",
    ),
    Refusal(_SCOPE, Case("source.columns", INFER), "declare the columns; or engine=SparkEngine()"),
    Refusal(_SCOPE, Case("source.options", GIVEN), _ON_SPARK),
    Refusal(_SCOPE, Case("source.bad_records", "quarantine"), _ON_SPARK),
    Refusal(_SCOPE, Case("source.extra_columns", "ignore"), _ON_SPARK),
    Refusal(_SCOPE, Case("source.rescued_data_column", GIVEN), _ON_SPARK),
    Refusal(_SCOPE, Case("source.partition_columns", GIVEN), _ON_SPARK),
    Refusal(_SCOPE, Case("source.options_by_pattern", GIVEN), _ON_SPARK),
    Refusal(_SCOPE, Case("source.missing_columns", "null"), _ON_SPARK),
    *(
        Refusal(_SCOPE, Case("source.format", kind), "use 'sstream'; or engine=SparkEngine()")
        for kind in ("parquet", "csv", "json", "text", "orc", "avro")
    ),
)
"""What SCOPE jobs cannot do; refused when all arguments are known."""


def check(refusals: Iterable[Refusal], values: Mapping[str, Any]) -> None:
    """Refuse the first two cases that do not go together.

    :param values: Argument -> its value, validated alone. None is a spec that only the task knows.
    :raises InputError: With the argument, what is expected beside the other, and what to write instead.
    """
    for refusal in refusals:
        of_write = refusal.only is None or isinstance(values.get("write"), refusal.only)
        if of_write and _is_so(refusal.beside, values) and _is_so(refusal.refused, values):
            name, value = refusal.refused.argument, _value(refusal.refused, values)
            if refusal.expected:
                raise validation.bad(
                    name, "replace" if value == Replace() else value, refusal.expected, refusal.do
                )
            # Not the values in a mapping: they may be secrets.
            shown = "" if isinstance(value, Mapping) else f"={value!r}"
            if isinstance(refusal.refused.value, type):
                shown = f"={type(value).__name__}(…)"
            kept = "everything; nothing was read or written"
            raise InputError(f"{name}{shown} is not possible with SCOPE jobs.", kept=kept, do=refusal.do)


def _is_so(case: Case, values: Mapping[str, Any]) -> bool:
    value = _value(case, values)
    if case.value is GIVEN:
        return bool(value)
    if isinstance(case.value, type | UnionType):
        return isinstance(value, case.value)
    return bool(value == case.value)


def _value(case: Case, values: Mapping[str, Any]) -> Any:
    argument, *path = case.argument.split(".")
    value = values.get(argument)
    for field in path:
        value = getattr(value, field, None)
    return value
