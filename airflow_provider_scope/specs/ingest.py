"""All that a pipeline is made of, validated together."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from airflow_provider_scope import validation
from airflow_provider_scope.columns import check_order
from airflow_provider_scope.delta.schema import TableSpec
from airflow_provider_scope.exceptions import SqlError
from airflow_provider_scope.expectations import check_levels
from airflow_provider_scope.sources import PARTS, AnySource
from airflow_provider_scope.sources.files.spec import VIRTUAL_COLUMNS, FileSource
from airflow_provider_scope.specs import capabilities
from airflow_provider_scope.specs.engine import ScopeEngine, SparkEngine, engine_from
from airflow_provider_scope.specs.write import Write, check_columns, with_own_columns, write_from
from airflow_provider_scope.sql import over_view
from airflow_provider_scope.values import Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp


SELECT_ALL = "SELECT * FROM @data"
_SINGLE: dict[str, Any] = {
    "delta_location": str | None,
    "sql": str,
    "sql_dialect": Literal["spark", "scope"] | None,
    "max_batches_per_run": validation.Count | None,
    "first_run": Literal["refuse", "add"] | None,
}
"""Those that are checked by their types alone."""
_SPECS: dict[str, Callable[[Any], Any]] = {
    "source": lambda value: source_from(value or {}),
    "table": lambda value: validation.from_dict(TableSpec, "table", value or {}),
    "write": write_from,
    "engine": engine_from,
    "checkpoint": lambda value: validation.from_dict(Checkpoint, "checkpoint", value or {}),
}
"""Those that are specs, and what makes one of what the user wrote."""


_Needed = Annotated[int, partial(validation.number, at_least=1, needed=True)]


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint of a pipeline; one checkpoint is one pipeline.

    :param location: A folder. None is ``_checkpoint`` below the table. A second pipeline on the same
        table needs a location of its own.
    :param compaction_interval: A segment of the loaded files that is this many times as large as what
        comes is not merged with it.
    :param retention_files: Files kept in ``sources/``, those of the newest batches.
    :raises InputError: A value is not valid.
    """

    location: str | None = None
    compaction_interval: _Needed = 10
    retention_files: _Needed = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """The arguments of ``DeltaIncrementalIngestOperator`` as values."""

    delta_location: str = ""
    """Empty: the engine's connection says where tables are."""
    source: AnySource
    sql: str = SELECT_ALL
    sql_dialect: Literal["spark", "scope"] = "spark"
    sql_params: dict[str, Any] = field(default_factory=dict)
    table: TableSpec = field(default_factory=TableSpec)
    write: Write = "append"
    engine: SparkEngine | ScopeEngine = field(default_factory=SparkEngine)
    full_refresh: bool = False
    max_batches_per_run: int | None = None
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    first_run: Literal["refuse", "add"] = "refuse"
    mode: Mode = "incremental"
    window: Window | None = None
    """The interval that is loaded; None if the run's own interval says so, or with ``mode="incremental"``."""


ARGUMENTS = (*(item.name for item in fields(Ingest) if item.name != "window"), "window_start", "window_end")
"""The names that ``ingest_from`` takes."""
WITH_COLUMNS = ("source", "table")
"""Those with columns in them."""
TEMPLATES = tuple(name for name in ARGUMENTS if name != "mode")
"""Those that may be templates. The mode decides when the Dag is parsed how many runs go on at once."""


def ingest_from(raw: Mapping[str, Any], late: Collection[str] = ()) -> Ingest | None:
    """Validate the operator's arguments, alone and together.

    :param raw: The names in ``ARGUMENTS``; specs or dicts.
    :param late: Arguments with ``columns`` that were a template or an XComArg before they were rendered.
    :return: None if one of the specs is known only when the task runs (an XComArg); everything that is
        known has been checked.
    :raises InputError: A value is not valid.
    """
    values = {name: validation.check(name, raw.get(name), kind) for name, kind in _SINGLE.items()}
    for name in late:
        check_order(name, raw[name])
    for name, make in _SPECS.items():
        values[name] = None if validation.is_deferred(raw[name]) else make(raw[name])
    values |= {
        "sql_params": _params(raw["sql_params"]),
        "full_refresh": validation.switch("full_refresh", raw["full_refresh"]),
        "mode": mode_from(raw.get("mode")),
    }
    bounds = {name: raw.get(name) for name in ("window_start", "window_end")}
    ends = {name: value for name, value in bounds.items() if validation.is_given(value)}
    capabilities.check(capabilities.TOGETHER, {**values, **ends})
    window = window_from(ends)
    _check_sql(values)
    _check_rules(values)
    if values["write"] is not None:
        _check_write(values["write"], values["sql"], values["source"], values["table"])
    if any(values[name] is None for name in _SPECS) or validation.is_deferred(values["sql_params"]):
        return None
    return Ingest(**{name: value for name, value in values.items() if value is not None}, window=window)


def _check_sql(values: Mapping[str, Any]) -> None:
    """Check the SELECT, if it is known, and is not one for SCOPE jobs."""
    sql, source = values["sql"], values["source"]
    if isinstance(values["engine"], ScopeEngine) or validation.is_deferred(sql) or sql.endswith(".sql"):
        return
    over_view(sql, "data")
    # Nothing to check without columns in it, and the parser costs a quarter of a second to import.
    columns = source.declared_columns if source else None
    if sql != SELECT_ALL and columns is not None:
        check_select(sql, columns)


def _check_rules(values: Mapping[str, Any]) -> None:
    """Check the rules of the table against the source, if both are known; SCOPE jobs refuse all rules."""
    table, source = values["table"], values["source"]
    is_of_jobs = isinstance(values["engine"], ScopeEngine)
    if table is None or source is None or is_of_jobs or validation.is_deferred(table.expect):
        return
    if not (isinstance(source, FileSource) and validation.is_deferred(source.bad_records)):
        check_levels(table.expect, has_quarantine=source.puts_bad_records_aside)


def _params(value: Any) -> Any:
    """Return the parameters of the SELECT; times and decimals as the text that a template gives of them.

    :raises InputError: A value is of another type than a plan file has.
    """
    validation.mapping("sql_params", value)
    if validation.is_deferred(value):
        return value
    params = {}
    for name, item in (value or {}).items():
        is_plain = item is None or isinstance(item, str | bool | int | float) or validation.is_deferred(item)
        if not is_plain and not isinstance(item, date | Decimal):
            raise validation.bad(f"sql_params[{name!r}]", item, "text, a number, a boolean, a time or None")
        params[name] = item if is_plain else str(item)
    return params


def _check_write(write: Write, sql: str, source: Any, table: Any) -> None:
    """Check the columns that a write names, where the columns of the rows are certain.

    :raises InputError: The rows do not have one, or have one that the write adds.
    """
    selected = source.declared_columns if source and sql == SELECT_ALL else None
    declared = table.columns if isinstance(table, TableSpec) else None
    for columns in (selected, declared):
        if isinstance(columns, Mapping):
            with_own_columns({name: str(kind) for name, kind in columns.items()}, write)
    if selected is not None:
        check_columns(write, selected)
    elif isinstance(declared, Mapping) and table.schema_evolution == "fail":
        # The rows of a batch have all columns of the table, and no others.
        check_columns(write, declared)


Mode = Literal["incremental", "data_interval"]


def mode_from(value: Any) -> Mode:
    """Return the mode; None is ``"incremental"``.

    :raises InputError: There is no such mode.
    """
    mode = "incremental" if value is None else value
    if not isinstance(mode, str) or mode not in get_args(Mode):
        do = "set it in the task: a mode in the default_args of the Dag, such as that of sensors, counts, too"
        raise validation.bad("mode", value, "one of 'incremental', 'data_interval'", do)
    return "data_interval" if mode == "data_interval" else "incremental"


def window_from(ends: Mapping[str, Any]) -> Window | None:
    """Return the window that was written out.

    :param ends: ``window_start`` and ``window_end``, as far as there are values.
    :return: None if there is none, or if it is known only when the task runs.
    :raises InputError: One of the two is missing or not a time, or the window is empty.
    """
    moments = {name: validation.instant_ms(name, value) for name, value in ends.items()}
    if not ends or any(validation.is_deferred(value) for value in ends.values()):
        return None
    for name in ("window_start", "window_end"):
        if name not in moments:
            raise validation.bad(
                name, None, "both ends of the window, or neither", "give window_start and window_end"
            )
    window = Window(moments["window_start"] or 0, moments["window_end"] or 0)
    if window.start_ms >= window.end_ms:
        start, end = ends["window_start"], ends["window_end"]
        raise validation.bad("window_end", end, f"a time after window_start={start!r}")
    return window


_VIEW = "scope_data"


def check_select(sql: str, columns: Iterable[str]) -> None:
    """Check that every column the SELECT names is declared.

    Only what is certain is refused: a text that this parser does not know, or that reads other tables,
    is left to Spark.

    :param columns: The declared columns of the files.
    :raises SqlError: Names each unknown column, and the declared one that looks most like it.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(over_view(sql, _VIEW), dialect="spark")
    except SqlglotError:
        return
    ctes = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    tables = {table.name.lower() for table in tree.find_all(exp.Table)}
    if tables - ctes != {_VIEW}:
        return
    declared = {name.lower(): name for name in columns}
    names = {*declared, *VIRTUAL_COLUMNS, *_made_in(tree)}
    relations = _relations(tree) | ctes
    unknown = []
    for column in tree.find_all(exp.Column):
        parts = [part.name.lower() for part in column.parts]
        if parts[0] in relations and len(parts) > 1:
            parts = parts[1:]
        if not isinstance(column.this, exp.Star) and parts[0] not in names:
            unknown.append(column.parts[0].name if len(parts) == len(column.parts) else column.name)
    if unknown:
        raise SqlError(
            "The SQL names columns that `source.columns` does not declare: "
            + ", ".join(_hint(name, declared) for name in dict.fromkeys(unknown))
            + ".",
            kept="everything; nothing was read or written",
            do="correct the name, or declare the column in FileSource(columns=...)",
        )


def _made_in(tree: exp.Expr) -> set[str]:
    """Return the names that the SELECT itself makes: aliases, lambda parameters, columns of generators."""
    from sqlglot import exp

    names = {alias.alias.lower() for alias in tree.find_all(exp.Alias)}
    for function in tree.find_all(exp.Lambda):
        names |= {parameter.name.lower() for parameter in function.expressions}
    for alias in tree.find_all(exp.TableAlias):
        names |= {column.name.lower() for column in alias.columns}
    for several in tree.find_all(exp.Aliases):
        names |= {alias.name.lower() for alias in several.aliases if hasattr(alias, "name")}
    return names


def _relations(tree: exp.Expr) -> set[str]:
    from sqlglot import exp

    aliases = {alias.name.lower() for alias in tree.find_all(exp.TableAlias) if alias.this}
    return aliases | {_VIEW}


def _hint(name: str, declared: dict[str, str]) -> str:
    close = difflib.get_close_matches(name.lower(), declared, n=1)
    return f"{name} (did you mean {declared[close[0]]}?)" if close else name


def source_from(value: Any) -> AnySource:
    """Make the source out of what the user wrote.

    :raises InputError: It is none, or a value in it is not valid.
    """
    if isinstance(value, AnySource):
        return value
    named = value if isinstance(value, Mapping) else {}
    kind = next((kind for kind, parts in PARTS.items() if parts.field in named), FileSource)
    return validation.from_dict(kind, "source", value)


def files_of(source: AnySource) -> FileSource:
    """Return a source of files, for what reads nothing else.

    :raises TypeError: It is another one.
    """
    if not isinstance(source, FileSource):
        msg = f"the source is a {type(source).__name__}"
        raise TypeError(msg)
    return source
