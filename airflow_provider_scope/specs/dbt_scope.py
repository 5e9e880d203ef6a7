"""From a dbt-scope model to the arguments of ``DeltaIncrementalIngestOperator``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.files.spec import VIRTUAL_COLUMNS
from airflow_provider_scope.specs.engine import COMMIT_CONDITIONS
from airflow_provider_scope.specs.ingest import ARGUMENTS, ingest_from

_BOTH = {
    "max_files_per_trigger",
    "max_bytes_per_trigger",
    "scope_feature_previews",
    "max_file_count_per_output_file_set",
    "delta_lake_commit_condition",
    "au",
    "priority",
    "job_timeout_seconds",
    "adls_gen1_account",
    # dbt's own:
    "database",
    "schema",
}
"""A model may have these, or else the profile."""
_CONFIG = {
    *_BOTH,
    "delta_location",
    "alias",
    "source_roots",
    "source_patterns",
    "safety_buffer_seconds",
    "starting_timestamp",
    "source_compaction_interval",
    "source_retention_files",
    "extract_columns",
    "delta_table_columns",
    "partition_by",
    "scope_settings",
    "materialized",
    "incremental_strategy",
    "trigger",
    "job_tag",
    "full_refresh",
    # dbt's own, which dbt-scope does not read either:
    "batch_size",
    "begin",
    "docs",
    "enabled",
    "event_time",
    "group",
    "lookback",
    "meta",
    "tags",
}
_PROFILE = {
    *_BOTH,
    "storage_account",
    "container",
    "delta_base_path",
    "poll_interval_seconds",
    # What the connections ``adla_scope`` and ``adls_gen1`` hold:
    "adla_account",
    "authentication",
    "credential_class",
    "credential_kwargs",
    "http_retries",
    "http_timeout_seconds",
    "initial_wait_on_error_seconds",
    "max_retries_on_error",
    "max_wait_on_error_seconds",
    "retry_on_error_messages",
    # Without effect here:
    "cancel_jobs_on_shutdown",
    "enable_quota_eviction",
    "max_wait_seconds",
    "quota_eviction_cancel_num",
    "quota_eviction_jitter_seconds",
    "quota_eviction_max_attempts",
    "quota_eviction_wait_seconds",
    "threads",
    "type",
    "wait_on_cancel_seconds",
}


def from_dbt_scope(
    config: Mapping[str, Any], sql: str, profile: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of ``DeltaIncrementalIngestOperator`` for a dbt-scope model.

    :param config: What the model hands to ``config(…)``.
    :param sql: The model's SELECT, as ``dbt compile`` gives it: without Jinja.
    :param profile: The output of ``profiles.yml``. Accounts and credentials go into connections.
    :return: Plain values: ``DeltaIncrementalIngestOperator(task_id=…, **from_dbt_scope(…))``.
    :raises InputError: A key is unknown, or a value has no counterpart.
    """
    profile = profile or {}
    _check_keys("config", config, _CONFIG)
    _check_keys("profile", profile, _PROFILE)
    validation.text("sql", sql)
    if validation.is_deferred(sql):
        raise validation.bad(
            "sql", sql[:60], "SQL without Jinja", "take it from dbt's folder target/compiled"
        )
    # The model's value takes precedence over the profile's.
    values = _present(**{**profile, **_present(**config)})
    _check_trigger(values.get("trigger"))
    arguments: dict[str, Any] = {
        "delta_location": _location(values),
        "source": _source(values),
        "sql": sql.strip().rstrip(";").rstrip(),
        "sql_dialect": "scope",
        "table": _table(values),
        "write": _write(values),
        "engine": _engine(values),
        "checkpoint": _present(
            compaction_interval=values.get("source_compaction_interval"),
            retention_files=values.get("source_retention_files"),
        ),
    }
    arguments |= _present(
        full_refresh=values.get("full_refresh") or None, poll_interval=values.get("poll_interval_seconds")
    )
    ingest_from({**dict.fromkeys(ARGUMENTS), **{k: v for k, v in arguments.items() if k in ARGUMENTS}})
    return arguments


def _check_keys(argument: str, values: Mapping[str, Any], names: set[str]) -> None:
    if not isinstance(values, Mapping):
        raise validation.bad(argument, values, "a dict")
    unknown = sorted(str(key) for key in values if key not in names)
    if unknown:
        raise InputError(
            f"{argument} has keys that are not dbt-scope's, or have no counterpart here: "
            f"{', '.join(unknown)}.",
            kept="everything; nothing was read or written",
            do="; ".join(_instead(argument, key) for key in unknown),
        )


def _instead(argument: str, key: str) -> str:
    if argument == "config" and key in _PROFILE:
        return f"take {key} out of config: it belongs in the profile"
    if argument == "profile" and key in _CONFIG:
        return f"take {key} out of the profile: it belongs in config"
    return (
        f"{key}: correct the spelling, or leave it out; what names of other versions became is in the page "
        "`Names in dbt-scope`"
    )


def _check_trigger(trigger: Any) -> None:
    if not trigger:
        return
    kind = trigger.get("type", "available_now") if isinstance(trigger, Mapping) else trigger
    if kind != "available_now":
        raise validation.bad(
            "trigger",
            trigger,
            "None or {'type': 'available_now'}",
            "leave it out, and give the Dag a schedule with the interval: a run ends when it has loaded "
            "what is there",
        )


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _location(values: Mapping[str, Any]) -> str:
    location = values.get("delta_location")
    if location:
        return str(location)
    table = values.get("alias")
    if not table:
        raise validation.bad("delta_location", location, "a location, or alias, the table's name")
    account, container = _needed(values, "storage_account"), _needed(values, "container")
    base = str(values.get("delta_base_path", "delta")).strip("/")
    folder = f"{base}/{table}" if base else str(table)
    return f"abfss://{container}@{account}.dfs.core.windows.net/{folder}"


def _needed(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value:
        why = "without delta_location, the table's location is derived from the profile"
        raise validation.bad(f"profile[{key!r}]", value, "text that is not empty", f"add it: {why}")
    return value


def _source(values: Mapping[str, Any]) -> dict[str, Any]:
    extract = _columns(values, "extract_columns")
    columns = {name: kind for name, kind in extract.items() if name.lower() not in VIRTUAL_COLUMNS}
    roots = validation.each_of(validation.texts("source_roots", values.get("source_roots")))
    return {
        "roots": [_root(root, values.get("adls_gen1_account")) for root in roots],
        **_present(
            patterns=values.get("source_patterns"),
            columns=columns or None,
            max_files_per_trigger=values.get("max_files_per_trigger"),
            max_bytes_per_trigger=values.get("max_bytes_per_trigger"),
            safety_buffer_seconds=values.get("safety_buffer_seconds"),
            starting_timestamp=values.get("starting_timestamp"),
        ),
    }


def _root(root: str, account: Any) -> str:
    if "://" in root or (validation.is_deferred(root) and not root.startswith("/")):
        return root
    if not isinstance(account, str) or not account:
        raise validation.bad(
            "profile['adls_gen1_account']", account, "the account of the source's folders", "add it"
        )
    host = account if "." in account else f"{account}.azuredatalakestore.net"
    return f"adl://{host}/{root.strip('/')}"


def _columns(values: Mapping[str, Any], argument: str) -> dict[str, str]:
    columns = values.get(argument, ())
    if not isinstance(columns, Sequence):
        raise validation.bad(argument, columns, "a list of columns")
    types: dict[str, str] = {}
    for column in columns:
        if not isinstance(column, Mapping) or not isinstance(column.get("name"), str):
            raise validation.bad(argument, column, "columns as {'name': …, 'type': …}")
        _check_keys(argument, column, {"name", "type"})
        if column["name"] in types:
            raise validation.bad(argument, column["name"], "each column once")
        types[column["name"]] = column.get("type", "string")
    return types


def _table(values: Mapping[str, Any]) -> dict[str, Any]:
    partitions = values.get("partition_by")
    settings = validation.mapping("scope_settings", values.get("scope_settings")) or {}
    return _present(
        columns=_columns(values, "delta_table_columns") or None,
        partition_by=[partitions] if isinstance(partitions, str) else partitions,
        # dbt-scope writes Python's True, which is no value of a property.
        properties={k: str(v).lower() if isinstance(v, bool) else v for k, v in settings.items()} or None,
    )


def _write(values: Mapping[str, Any]) -> str:
    # Both append: dbt-scope cuts batches by files, whatever the strategy says.
    strategy = values.get("incremental_strategy", "append")
    validation.one_of("incremental_strategy", strategy, ("append", "microbatch"))
    writes = {"incremental": "append", "table": "replace"}
    return writes[validation.one_of("materialized", values.get("materialized", "incremental"), (*writes,))]


def _engine(values: Mapping[str, Any]) -> dict[str, Any]:
    previews = values.get("scope_feature_previews")
    if isinstance(previews, str):
        previews = [preview.strip() for preview in previews.split(",")] if previews else None
    condition = values.get("delta_lake_commit_condition")
    if condition is not None:
        validation.one_of("delta_lake_commit_condition", condition, COMMIT_CONDITIONS)
    settings = _present(
        DeltaLakeCommitCondition=condition,
        MaxFileCountPerOutputFileSet=values.get("max_file_count_per_output_file_set"),
    )
    return {
        # It tells the engine from Spark's, so it is there even if it is the default.
        "scope_conn_id": "adla_scope_default",
        **_present(
            au=values.get("au"),
            priority=values.get("priority"),
            job_tag=values.get("job_tag") or values.get("alias"),
            job_timeout_seconds=values.get("job_timeout_seconds"),
            feature_previews=previews,
            settings=settings or None,
        ),
    }
