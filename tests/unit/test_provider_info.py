"""Airflow finds the provider."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from importlib.resources import files

import jsonschema

from airflow_provider_scope.get_provider_info import get_provider_info


def test_the_entry_point_gives_a_description_that_fits_airflows_schema():
    (entry,) = [
        e for e in entry_points(group="apache_airflow_provider") if e.dist.name == "airflow-provider-scope"
    ]
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())

    info = entry.load()()

    jsonschema.validate(info, schema)
    assert info == get_provider_info()
    assert info["package-name"] == "airflow-provider-scope"


def test_airflow_discovers_the_provider_and_its_commands():
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()

    assert "airflow-provider-scope" in manager.providers
    assert [c.name for f in manager.cli_command_functions for c in f() if c.name == "scope"] == ["scope"]
