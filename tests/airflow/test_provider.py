"""What Airflow's own commands show of the provider, each in a process with a fresh home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any


def airflow(home: Path, *words: str) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment = {**kept, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    command = [str(Path(sys.executable).with_name("airflow")), *words, "--output", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_providers_list_shows_the_provider(tmp_path):
    (found,) = [
        row
        for row in airflow(tmp_path, "providers", "list")
        if row["package_name"] == "airflow-provider-scope"
    ]

    assert found == {
        "package_name": "airflow-provider-scope",
        "description": "Incremental, exactly-once ingestion into Delta Lake tables",
        "version": version("airflow-provider-scope"),
    }


def test_providers_get_shows_the_operator_and_the_commands(tmp_path):
    (found,) = airflow(tmp_path, "providers", "get", "airflow-provider-scope", "--full")

    assert "airflow_provider_scope.operators.delta_ingest" in str(found["operators"])
    assert "airflow_provider_scope.cli.definition.get_scope_cli_commands" in str(found["cli"])


def test_providers_hooks_shows_our_connection_types_and_leaves_spark_to_its_provider(tmp_path):
    """The engine takes connections of type ``spark``; a second hook for that type would hide the first."""
    rows = {row["connection_type"]: row for row in airflow(tmp_path, "providers", "hooks")}

    assert rows["spark"] == {
        "connection_type": "spark",
        "class": "airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook",
        "conn_id_attribute_name": "conn_id",
        "package_name": "apache-airflow-providers-apache-spark",
        "hook_name": "Spark",
    }
    ours = [row for row in rows.values() if row["package_name"] == "airflow-provider-scope"]
    assert sorted((row["connection_type"], row["class"]) for row in ours) == [
        ("adla_scope", "airflow_provider_scope.hooks.scope.ScopeHook"),
        ("adls_gen1", "airflow_provider_scope.hooks.adls_gen1.AdlsGen1Hook"),
    ]
