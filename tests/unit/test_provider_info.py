"""Airflow finds the provider."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from importlib.resources import files

import jsonschema
import pytest

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


def form_of(kind):
    """Return a connection's fields as the form gets them."""
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService

    (form,) = [hook for hook in HookMetaService.hook_meta_data() if hook.connection_type == kind]
    return form.extra_fields


@pytest.mark.parametrize(
    ("kind", "sections"),
    [
        (
            "adla_scope",
            ["Account", "Identity", "Jobs", "Limits of a batch", "Tables without a location", "Requests"],
        ),
        ("adls_gen1", ["Account", "Identity", "Requests"]),
    ],
)
def test_the_form_of_a_connection_has_sections_and_the_account_first(kind, sections):
    fields = form_of(kind)

    assert list(dict.fromkeys(field["schema"]["section"] for field in fields.values())) == sections
    grouped = sorted(fields.values(), key=lambda field: sections.index(field["schema"]["section"]))
    assert grouped == list(fields.values())
    assert next(iter(fields)) == "account_name"
    # Airflow's form asks for a value where null is no type of it.
    needed = [name for name, field in fields.items() if "null" not in field["schema"]["type"]]
    assert needed == ["account_name"]
    assert all(field["description"] and field["schema"]["title"] for field in fields.values())


def test_no_number_of_the_form_needs_counting_its_digits():
    defaults = {name: field["value"] for name, field in form_of("adla_scope").items()}

    assert defaults["max_bytes_per_trigger"] == "10000 GiB"
    assert [name for name, value in defaults.items() if isinstance(value, int) and value > 36_000] == []
