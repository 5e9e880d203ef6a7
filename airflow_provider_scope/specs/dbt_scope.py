"""From a dbt-scope model to the arguments of ``DeltaIncrementalIngestOperator``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.files.spec import VIRTUAL_COLUMNS
from airflow_provider_scope.specs.engine import COMMIT_CONDITIONS
from airflow_provider_scope.specs.ingest import ARGUMENTS, ingest_from

_CONFIG = {
    "delta_location",
    "alias",
    "source_roots",
    "source_patterns",
    "max_files_per_trigger",
    "max_bytes_per_trigger",
    "safety_buffer_seconds",
    "starting_timestamp",
    "source_compaction_interval",
    "source_retention_files",
    "extract_columns",
    "delta_table_columns",
    "partition_by",
    "scope_settings",
    "scope_feature_previews",
    "max_file_count_per_output_file_set",
    "delta_lake_commit_condition",
    "materialized",
    "incremental_strategy",
    "trigger",
    "au",
    "priority",
    "job_tag",
    "job_timeout_seconds",
    "adls_gen1_account",
    "full_refresh",
    # dbt's own, which dbt-scope does not read either:
    "batch_size",
    "begin",
    "database",
    "docs",
    "enabled",
    "event_time",
    "group",
    "lookback",
    "meta",
    "schema",
    "tags",
}
_PROFILE = {
    "adls_gen1_account",
    "storage_account",
    "container",
    "delta_base_path",
    "au",
    "priority",
    "poll_interval_seconds",
    "job_timeout_seconds",
    "max_files_per_trigger",
    "max_bytes_per_trigger",
    "max_file_count_per_output_file_set",
    "delta_lake_commit_condition",
    "scope_feature_previews",
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
    "database",
    "enable_quota_eviction",
    "max_wait_seconds",
    "quota_eviction_cancel_num",
    "quota_eviction_jitter_seconds",
    "quota_eviction_max_attempts",
    "quota_eviction_wait_seconds",
    "schema",
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
    if validation.is_deferred(sql):
        raise validation.bad(
            "sql", sql[:60], "SQL without Jinja", "take it from dbt's folder target/compiled"
        )
    _check_trigger(config.get("trigger"))
    arguments: dict[str, Any] = {
        "delta_location": _location(config, profile),
        "source": _source(config, profile),
        "sql": sql.strip().rstrip(";").rstrip(),
        "sql_dialect": "scope",
        "table": _table(config),
        "write": _write(config),
        "engine": _engine(config, profile),
        "checkpoint": _present(
            compaction_interval=config.get("source_compaction_interval"),
            retention_files=config.get("source_retention_files"),
        ),
    }
    arguments |= _present(
        full_refresh=config.get("full_refresh") or None, poll_interval=profile.get("poll_interval_seconds")
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


def _first(config: Mapping[str, Any], profile: Mapping[str, Any], key: str) -> Any:
    value = config.get(key)
    return profile.get(key) if value is None else value


def _needed(profile: Mapping[str, Any], key: str, why: str) -> str:
    value = profile.get(key)
    if not isinstance(value, str) or not value:
        raise validation.bad(f"profile[{key!r}]", value, "text that is not empty", f"add it: {why}")
    return value


def _location(config: Mapping[str, Any], profile: Mapping[str, Any]) -> str:
    location = config.get("delta_location")
    if location:
        return str(location)
    table = config.get("alias")
    if not table:
        raise validation.bad("delta_location", location, "a location, or alias, the table's name")
    why = "without delta_location, the table's location is derived from the profile"
    container, account = _needed(profile, "container", why), _needed(profile, "storage_account", why)
    base = str(profile.get("delta_base_path", "delta")).strip("/")
    return f"abfss://{container}@{account}.dfs.core.windows.net/{base}/{table}"


def _source(config: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    extract = _columns("extract_columns", config.get("extract_columns"))
    columns = {name: kind for name, kind in extract.items() if name.lower() not in VIRTUAL_COLUMNS}
    roots = config.get("source_roots")
    account = _first(config, profile, "adls_gen1_account")
    return {
        "roots": [_root(root, account) for root in ([roots] if isinstance(roots, str) else roots or [])],
        **_present(
            patterns=config.get("source_patterns"),
            columns=columns or None,
            max_files_per_trigger=_first(config, profile, "max_files_per_trigger"),
            max_bytes_per_trigger=_first(config, profile, "max_bytes_per_trigger"),
            safety_buffer_seconds=config.get("safety_buffer_seconds"),
            starting_timestamp=config.get("starting_timestamp"),
        ),
    }


def _root(root: str, account: Any) -> str:
    if "://" in root or validation.is_deferred(root):
        return root
    if not account:
        raise validation.bad(
            "profile['adls_gen1_account']", account, "the account of the source's folders", "add it"
        )
    host = account if "." in account else f"{account}.azuredatalakestore.net"
    return f"adl://{host}/{root.strip('/')}"


def _columns(argument: str, columns: Any) -> dict[str, str]:
    types: dict[str, str] = {}
    for column in columns or ():
        if not isinstance(column, Mapping) or not isinstance(column.get("name"), str):
            raise validation.bad(argument, column, "columns as {'name': …, 'type': …}")
        _check_keys(argument, column, {"name", "type"})
        if column["name"] in types:
            raise validation.bad(argument, column["name"], "each column once")
        types[column["name"]] = column.get("type", "string")
    return types


def _table(config: Mapping[str, Any]) -> dict[str, Any]:
    partitions = config.get("partition_by")
    settings = config.get("scope_settings") or {}
    validation.mapping("scope_settings", settings)
    return _present(
        columns=_columns("delta_table_columns", config.get("delta_table_columns")) or None,
        partition_by=[partitions] if isinstance(partitions, str) else partitions,
        # dbt-scope writes Python's True, which is no value of a property.
        properties={k: str(v).lower() if isinstance(v, bool) else v for k, v in settings.items()} or None,
    )


def _write(config: Mapping[str, Any]) -> str:
    kinds = {"incremental": "append", "table": "replace"}
    kind = config.get("materialized", "incremental")
    validation.one_of("materialized", kind, tuple(kinds))
    # Both append: dbt-scope cuts batches by files, whatever the strategy says.
    validation.one_of(
        "incremental_strategy", config.get("incremental_strategy", "append"), ("append", "microbatch")
    )
    return kinds[kind]


def _engine(config: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    previews = _first(config, profile, "scope_feature_previews")
    condition = _first(config, profile, "delta_lake_commit_condition")
    if condition is not None:
        validation.one_of("delta_lake_commit_condition", condition, COMMIT_CONDITIONS)
    settings = _present(
        DeltaLakeCommitCondition=condition,
        MaxFileCountPerOutputFileSet=_first(config, profile, "max_file_count_per_output_file_set"),
    )
    return {
        # It tells the engine from Spark's, so it is there even if it is the default.
        "scope_conn_id": "adla_scope_default",
        **_present(
            au=_first(config, profile, "au"),
            priority=_first(config, profile, "priority"),
            job_tag=config.get("job_tag") or config.get("alias"),
            job_timeout_seconds=_first(config, profile, "job_timeout_seconds"),
            feature_previews=previews.split(",") if isinstance(previews, str) and previews else None,
            settings=settings or None,
        ),
    }
