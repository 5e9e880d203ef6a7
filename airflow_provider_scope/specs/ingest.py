"""All that a pipeline is made of, validated together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_scope.core.sql import over_view
from airflow_provider_scope.specs import capabilities, validation
from airflow_provider_scope.specs.checkpoint import Checkpoint
from airflow_provider_scope.specs.columns import check_order
from airflow_provider_scope.specs.engine import ScopeEngine, SparkEngine, engine_from
from airflow_provider_scope.specs.interval import Mode, is_given, mode_from, window_from
from airflow_provider_scope.specs.source import FileSource
from airflow_provider_scope.specs.sources import AnySource, source_from
from airflow_provider_scope.specs.sql_check import check_columns as check_select
from airflow_provider_scope.specs.table import TableSpec
from airflow_provider_scope.specs.write import Write, check_columns, with_own_columns, write_from

if TYPE_CHECKING:
    from airflow_provider_scope.core.interval import Window

SELECT_ALL = "SELECT * FROM @data"
ARGUMENTS = (
    "delta_location",
    "source",
    "sql",
    "sql_dialect",
    "sql_params",
    "table",
    "write",
    "engine",
    "mode",
    "window_start",
    "window_end",
    "full_refresh",
    "max_batches_per_run",
    "checkpoint",
    "validate_on_spark",
)
"""The names that ``ingest_from`` takes."""
WITH_COLUMNS = ("source", "table")
"""Those with columns in them."""
TEMPLATES = tuple(name for name in ARGUMENTS if name != "mode")
"""Those that may be templates. The mode decides when the Dag is parsed how many runs go on at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """The arguments of ``DeltaIncrementalIngestOperator`` as values."""

    delta_location: str
    """Empty: the engine's connection says where tables are."""
    source: AnySource
    sql: str
    sql_dialect: Literal["spark", "scope"]
    sql_params: dict[str, Any]
    table: TableSpec
    write: Write
    engine: SparkEngine | ScopeEngine
    full_refresh: bool
    max_batches_per_run: int | None
    checkpoint: Checkpoint
    validate_on_spark: int = 0
    """On how many files the model is tried before a job is submitted; 0 is not at all."""
    mode: Mode = "incremental"
    window: Window | None = None
    """The interval that is loaded; None if the run's own interval says so, or with ``mode="incremental"``."""


def ingest_from(raw: Mapping[str, Any], late: Collection[str] = ()) -> Ingest | None:
    """Validate the operator's arguments, alone and together.

    :param raw: The names in ``ARGUMENTS``; specs or dicts.
    :param late: Arguments with ``columns`` that were a template or an XComArg before they were rendered.
    :return: None if one of the specs is known only when the task runs (an XComArg); everything that is
        known has been checked.
    :raises InputError: A value is not valid.
    """
    validation.text("sql", raw["sql"])
    validation.mapping("sql_params", raw["sql_params"])
    for name in late:
        check_order(name, raw[name])
    specs = {
        name: None if validation.is_deferred(raw[name]) else validation.from_dict(kind, name, raw[name] or {})
        for name, kind in (
            ("table", TableSpec),
            ("checkpoint", Checkpoint),
        )
    }
    source = raw["source"]
    specs["source"] = None if validation.is_deferred(source) else source_from(source or {})
    specs["engine"] = None if validation.is_deferred(raw["engine"]) else engine_from(raw["engine"])
    if raw["sql_dialect"] is not None:
        validation.one_of("sql_dialect", raw["sql_dialect"], ("spark", "scope"))
    write = None if validation.is_deferred(raw["write"]) else write_from(raw["write"])
    batches = validation.number("max_batches_per_run", raw["max_batches_per_run"], at_least=1)
    refresh = validation.switch("full_refresh", raw["full_refresh"])
    if raw["delta_location"] is not None:
        validation.text("delta_location", raw["delta_location"])
    tried = validation.number("validate_on_spark", raw.get("validate_on_spark"), at_least=0)
    mode = mode_from(raw.get("mode"))
    ends = {name: raw.get(name) for name in ("window_start", "window_end") if is_given(raw.get(name))}
    known = {
        **specs,
        **ends,
        "delta_location": raw["delta_location"],
        "sql_dialect": raw["sql_dialect"],
        "write": write,
        "max_batches_per_run": batches,
        "full_refresh": refresh,
        "validate_on_spark": None if validation.is_deferred(tried) else tried,
        "mode": mode,
    }
    capabilities.check(capabilities.TOGETHER, known)
    window = window_from(ends)
    on_scope = isinstance(specs["engine"], ScopeEngine)
    sql = raw["sql"]
    if not on_scope and not validation.is_deferred(sql) and not sql.endswith(".sql"):
        over_view(sql, "data")
        source = specs["source"]
        # Nothing to check without columns in it, and the parser costs a quarter of a second to import.
        if sql != SELECT_ALL and isinstance(source, FileSource) and isinstance(source.columns, Mapping):
            check_select(sql, source.columns)
    if write is not None:
        _check_write(write, sql, specs["source"], specs["table"])
    if None in specs.values() or write is None or validation.is_deferred(raw["sql_params"]):
        return None
    return Ingest(
        delta_location=raw["delta_location"] or "",
        sql=sql,
        sql_dialect="scope" if raw["sql_dialect"] == "scope" else "spark",
        sql_params=dict(raw["sql_params"] or {}),
        write=write,
        full_refresh=bool(refresh),
        max_batches_per_run=batches,
        validate_on_spark=tried or 0,
        mode=mode,
        window=window,
        **specs,  # type: ignore[arg-type]
    )


def _check_write(write: Write, sql: str, source: Any, table: Any) -> None:
    """Check the columns that a write names, where the columns of the rows are certain.

    :raises InputError: The rows do not have one, or have one that the write adds.
    """
    selected = source.columns if isinstance(source, FileSource) and sql == SELECT_ALL else None
    declared = table.columns if isinstance(table, TableSpec) else None
    for columns in (selected, declared):
        if isinstance(columns, Mapping):
            with_own_columns({name: str(kind) for name, kind in columns.items()}, write)
    if isinstance(selected, Mapping):
        check_columns(write, selected)
    elif isinstance(declared, Mapping) and table.schema_evolution == "fail":
        # The rows of a batch have all columns of the table, and no others.
        check_columns(write, declared)
