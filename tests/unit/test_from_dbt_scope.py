"""A dbt-scope model becomes an operator, or an error that names what has no counterpart."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import from_dbt_scope

SQL = 'SELECT server, source_file_uri, DateTime.UtcNow.ToString("yyyyMMdd") AS day\nFROM @data;\n'
CONFIG: dict[str, Any] = {
    "materialized": "incremental",
    "incremental_strategy": "append",
    "delta_location": "abfss://ctr@acct.dfs.core.windows.net/delta/servers",
    "source_roots": ["/local/servers/", "/local/more"],
    "source_patterns": [r".*\.ss$"],
    "max_files_per_trigger": 100,
    "max_bytes_per_trigger": 10**12,
    "safety_buffer_seconds": 0,
    "starting_timestamp": "2026-04-07T10:00:00+00:00",
    "source_compaction_interval": 5,
    "source_retention_files": 50,
    "partition_by": "day",
    "scope_settings": {
        "microsoft.scope.compression": "vorder:zstd#11",
        "delta.checkpointInterval": 5,
        "x": True,
    },
    "scope_feature_previews": "EnableDeltaTableDynamicInsert:on,Other:off",
    "delta_lake_commit_condition": "FailIfPartitionConflict",
    "max_file_count_per_output_file_set": 5000,
    "au": 4,
    "priority": 2,
    "job_tag": "servers",
    "job_timeout_seconds": 7200,
    "trigger": {"type": "available_now"},
    "extract_columns": [{"name": "server", "type": "string"}, {"name": "source_file_uri", "type": "string"}],
    "delta_table_columns": [
        {"name": "server", "type": "string"},
        {"name": "source_file_uri"},
        {"name": "day", "type": "string"},
    ],
    "tags": ["nightly"],
}
PROFILE: dict[str, Any] = {
    "type": "scope",
    "adla_account": "jobs",
    "adls_gen1_account": "acme",
    "storage_account": "acct",
    "container": "ctr",
    "delta_base_path": "delta",
    "au": 100,
    "priority": 1,
    "max_files_per_trigger": 50,
    "poll_interval_seconds": 7,
    "http_retries": 3,
    "threads": 4,
}
ARGUMENTS: dict[str, Any] = {
    "delta_location": "abfss://ctr@acct.dfs.core.windows.net/delta/servers",
    "source": {
        "roots": [
            "adl://acme.azuredatalakestore.net/local/servers",
            "adl://acme.azuredatalakestore.net/local/more",
        ],
        "patterns": [r".*\.ss$"],
        "columns": {"server": "string"},
        "max_files_per_trigger": 100,
        "max_bytes_per_trigger": 1_000_000_000_000,
        "safety_buffer_seconds": 0,
        "starting_timestamp": "2026-04-07T10:00:00+00:00",
    },
    "sql": 'SELECT server, source_file_uri, DateTime.UtcNow.ToString("yyyyMMdd") AS day\nFROM @data',
    "sql_dialect": "scope",
    "table": {
        "columns": {"server": "string", "source_file_uri": "string", "day": "string"},
        "partition_by": ["day"],
        "properties": {
            "microsoft.scope.compression": "vorder:zstd#11",
            "delta.checkpointInterval": 5,
            "x": "true",
        },
    },
    "write": "append",
    "engine": {
        "scope_conn_id": "adla_scope_default",
        "au": 4,
        "priority": 2,
        "job_tag": "servers",
        "job_timeout_seconds": 7200,
        "feature_previews": ["EnableDeltaTableDynamicInsert:on", "Other:off"],
        "settings": {
            "DeltaLakeCommitCondition": "FailIfPartitionConflict",
            "MaxFileCountPerOutputFileSet": 5000,
        },
    },
    "checkpoint": {"compaction_interval": 5, "retention_files": 50},
    "poll_interval": 7,
}


def test_every_value_of_a_model_has_its_argument():
    assert from_dbt_scope(CONFIG, SQL, PROFILE) == ARGUMENTS


@pytest.mark.parametrize("materialized", ["incremental", "table"])
def test_the_arguments_make_an_operator(materialized):
    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

    arguments = from_dbt_scope({**CONFIG, "materialized": materialized}, SQL, PROFILE)

    operator = DeltaIncrementalIngestOperator(task_id="servers", **arguments)

    assert operator.write == {"incremental": "append", "table": "replace"}[materialized]


def test_what_a_model_leaves_out_comes_from_the_profile_or_is_left_to_the_operator():
    arguments = from_dbt_scope(
        {"alias": "servers", "source_roots": "/in", "delta_table_columns": [{"name": "a", "type": "long?"}]},
        "SELECT a FROM @data",
        PROFILE,
    )

    assert arguments == {
        "delta_location": "abfss://ctr@acct.dfs.core.windows.net/delta/servers",
        "source": {"roots": ["adl://acme.azuredatalakestore.net/in"], "max_files_per_trigger": 50},
        "sql": "SELECT a FROM @data",
        "sql_dialect": "scope",
        "table": {"columns": {"a": "long?"}},
        "write": "append",
        "engine": {
            "scope_conn_id": "adla_scope_default",
            "au": 100,
            "priority": 1,
            "job_tag": "servers",
        },
        "checkpoint": {},
        "poll_interval": 7,
    }


@pytest.mark.parametrize(
    ("base", "folder"), [(None, "delta/servers"), ("", "servers"), ("/a/b/", "a/b/servers")]
)
def test_an_empty_base_path_is_no_folder_of_the_location(base, folder):
    config = {**CONFIG, "delta_location": None, "alias": "servers"}

    arguments = from_dbt_scope(config, SQL, {**PROFILE, "delta_base_path": base})

    assert arguments["delta_location"] == f"abfss://ctr@acct.dfs.core.windows.net/{folder}"


def test_a_root_that_a_template_ends_has_its_account_too():
    roots = ["/local/{{ ds }}", "{{ var.value.root }}"]

    source = from_dbt_scope({**CONFIG, "source_roots": roots}, SQL, PROFILE)["source"]

    assert source["roots"] == ["adl://acme.azuredatalakestore.net/local/{{ ds }}", "{{ var.value.root }}"]


@pytest.mark.parametrize("previews", ["A:on, B:off", ["A:on", "B:off"]])
def test_each_preview_is_turned_on_by_its_name(previews):
    engine = from_dbt_scope({**CONFIG, "scope_feature_previews": previews}, SQL, PROFILE)["engine"]

    assert engine["feature_previews"] == ["A:on", "B:off"]


def test_a_model_that_is_always_refreshed_stays_so():
    assert from_dbt_scope({**CONFIG, "full_refresh": True}, SQL, PROFILE)["full_refresh"] is True
    assert "full_refresh" not in from_dbt_scope({**CONFIG, "full_refresh": False}, SQL, PROFILE)


def test_the_model_and_the_profile_stay_as_they_are():
    config, profile = {**CONFIG}, {**PROFILE}

    from_dbt_scope(config, SQL, profile)

    assert (config, profile) == (CONFIG, PROFILE)


@pytest.mark.parametrize(
    ("config", "profile", "words"),
    [
        (
            {"max_file_per_trigger": 5, "on_schema_change": "fail"},
            {},
            "max_file_per_trigger, on_schema_change",
        ),
        ({}, {"adls_account": "x"}, "profile has keys that are not dbt-scope's.*: adls_account"),
        ({"extract_columns": [{"name": "a", "kind": "x"}]}, {}, "extract_columns has keys .*: kind"),
        ({"extract_columns": ["a"]}, {}, "extract_columns='a'"),
        ({"extract_columns": 5}, {}, "extract_columns=5"),
        ({"source_roots": [5]}, {}, "source_roots=5"),
        ({}, {"adls_gen1_account": 5}, r"profile\['adls_gen1_account'\]=5"),
        ({"delta_table_columns": [{"name": "a"}, {"name": "a"}]}, {}, "expected each column once"),
        ({"materialized": "view"}, {}, "materialized='view'"),
        ({"incremental_strategy": "merge"}, {}, "incremental_strategy='merge'"),
        ({"trigger": {"type": "processing_time", "interval": "30s"}}, {}, "trigger=.*processing_time"),
        ({"delta_lake_commit_condition": "Never"}, {}, "delta_lake_commit_condition='Never'"),
        ({"delta_location": ""}, {}, "delta_location=''.*alias"),
        ({"delta_location": "", "alias": "t"}, {"container": ""}, r"profile\['container'\]=''"),
        ({}, {"adls_gen1_account": ""}, r"profile\['adls_gen1_account'\]"),
        ({"starting_timestamp": "2026-04-07"}, {}, "starting_timestamp='2026-04-07'"),
        ({"max_files_per_trigger": 0}, {}, "max_files_per_trigger=0"),
        ({"source_roots": []}, {}, "roots="),
        ({"partition_by": "elsewhere"}, {}, "partition_by='elsewhere'"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(config, profile, words):
    with pytest.raises(InputError, match=words):
        from_dbt_scope({**CONFIG, **config}, SQL, {**PROFILE, **profile})


@pytest.mark.parametrize(
    ("config", "profile", "do"),
    [
        (
            {"max_retries_on_error": 9},
            {},
            "take max_retries_on_error out of config",
        ),
        ({}, {"source_roots": "/in"}, "take source_roots out of the profile: it belongs in config"),
        (
            {"source_root": "/in"},
            {},
            "source_root: correct the spelling",
        ),
    ],
)
def test_a_name_in_the_wrong_place_and_one_of_another_version_have_their_advice(config, profile, do):
    with pytest.raises(InputError, match="have no counterpart here") as caught:
        from_dbt_scope({**CONFIG, **config}, SQL, {**PROFILE, **profile})
    assert caught.value.do.startswith(do)


def test_sql_with_jinja_is_refused():
    with pytest.raises(InputError, match="without Jinja") as caught:
        from_dbt_scope(CONFIG, "{{ config() }} SELECT a FROM @data", PROFILE)
    assert "target/compiled" in caught.value.do


def test_columns_keep_the_order_of_the_model() -> None:
    columns = [{"name": "id", "type": "long"}, {"name": "name"}, {"name": "city"}]

    arguments = from_dbt_scope(
        {**CONFIG, "extract_columns": columns, "delta_table_columns": columns[::-1], "partition_by": None},
        sql="SELECT city, name, id FROM @data",
        profile=PROFILE,
    )

    assert list(arguments["source"]["columns"]) == ["id", "name", "city"]
    assert list(arguments["table"]["columns"]) == ["city", "name", "id"]
