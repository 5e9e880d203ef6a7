"""What Airflow's own commands show of the provider."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest


@pytest.fixture
def airflow(capsys: pytest.CaptureFixture[str]) -> Any:
    from airflow.cli.cli_parser import get_parser

    def run(*words: str) -> Any:
        args = get_parser().parse_args([*words, "--output", "json"])
        capsys.readouterr()
        args.func(args)
        return json.loads(capsys.readouterr().out)

    return run


def test_providers_list_shows_the_provider(airflow):
    (found,) = [
        row for row in airflow("providers", "list") if row["package_name"] == "airflow-provider-scope"
    ]

    assert found == {
        "package_name": "airflow-provider-scope",
        "description": "Incremental, exactly-once ingestion into Delta Lake tables",
        "version": version("airflow-provider-scope"),
    }


def test_providers_get_shows_the_operator_and_the_commands(airflow):
    (found,) = airflow("providers", "get", "airflow-provider-scope", "--full")

    assert "airflow_provider_scope.operators.delta_ingest" in str(found["operators"])
    assert "airflow_provider_scope.cli.definition.get_scope_cli_commands" in str(found["cli"])


@pytest.mark.filterwarnings("ignore:ProvidersManager.hooks")  # of Airflow 3.3
def test_our_connection_types_have_our_hooks_and_spark_has_that_of_its_provider():
    """The engine takes connections of type ``spark``; a second hook for that type would hide the first."""
    from airflow.providers_manager import ProvidersManager

    hooks = ProvidersManager().hooks
    spark = hooks["spark"]
    ours = {kind: hooks[kind] for kind in ("adla_scope", "adls_gen1")}

    assert spark.hook_class_name == "airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook"
    assert spark.package_name == "apache-airflow-providers-apache-spark"
    assert {kind: hook.hook_class_name for kind, hook in ours.items()} == {
        "adla_scope": "airflow_provider_scope.hooks.scope.ScopeHook",
        "adls_gen1": "airflow_provider_scope.hooks.adls_gen1.AdlsGen1Hook",
    }
    assert {hook.package_name for hook in ours.values()} == {"airflow-provider-scope"}
