"""What a connection says is read and checked before anything is sent."""

from __future__ import annotations

import json

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.get_provider_info import get_provider_info
from airflow_provider_scope.hooks.adls_gen1 import AdlsGen1Hook
from airflow_provider_scope.hooks.credentials import identity_of
from airflow_provider_scope.hooks.scope import ScopeHook
from airflow_provider_scope.hooks.settings import Fields, ScopeDefaults, Service
from airflow_provider_scope.stores.calls import Repeating

FORMS = {form["connection-type"]: form for form in get_provider_info()["connection-types"]}
ACME = {"account_name": "acme"}


def connection(conn_type: str = "adla_scope", **fields):
    from airflow.sdk import Connection

    return Connection(conn_id="tried", conn_type=conn_type, **fields)


def scope(**extra) -> ScopeHook:
    return ScopeHook(connection=connection(extra=json.dumps({**ACME, **extra})))


def test_a_connection_with_an_account_alone_has_the_defaults_of_the_seed(connect):
    hook = ScopeHook(connect(extra=ACME))

    assert hook.service == Service(
        url="https://acme.azuredatalakeanalytics.net",
        authority="acme.azuredatalakeanalytics.net",
        requests={
            "timeout_seconds": 30.0,
            "repeating": Repeating(retries=3),
            "retry_on_error_messages": (
                "re:Cannot exceed .*queued SCOPE jobs",
                "The maximum number of queued jobs for your account",
            ),
        },
    )
    assert hook.defaults == ScopeDefaults(
        au=100,
        priority=1,
        job_timeout_seconds=36000.0,
        feature_previews="EnableDeltaTableDynamicInsert:on",
        poll_interval=5.0,
        max_files_per_trigger=50,
        max_bytes_per_trigger=10_737_418_240_000,
        delta_root=None,
    )


def test_what_the_connection_says_wins_over_the_seed_also_as_text(connect):
    extra = {
        **ACME,
        "au": "20",
        "priority": 900,
        "job_timeout_seconds": "60",
        "feature_previews": "A:on",
        "poll_interval": 30,
        "max_files_per_trigger": "7",
        "max_bytes_per_trigger": 1000,
        "storage_account": "store",
        "container": "tables",
        "delta_base_path": "/raw/delta/",
        "http_timeout_seconds": "2.5",
        "http_retries": 0,
        "retry_on_error_messages": "busy\n\nre:a|b\n",
    }
    hook = ScopeHook(connect(extra=extra))

    assert hook.defaults == ScopeDefaults(
        au=20,
        priority=900,
        job_timeout_seconds=60.0,
        feature_previews="A:on",
        poll_interval=30.0,
        max_files_per_trigger=7,
        max_bytes_per_trigger=1000,
        delta_root="abfss://tables@store.dfs.core.windows.net/raw/delta",
    )
    assert hook.defaults.delta_location("flights") == (
        "abfss://tables@store.dfs.core.windows.net/raw/delta/flights"
    )
    assert hook.service.requests == {
        "timeout_seconds": 2.5,
        "repeating": Repeating(retries=0),
        "retry_on_error_messages": ("busy", "re:a|b"),
    }


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("10000 GiB", 10_737_418_240_000),
        ("1.5 TiB", 1_649_267_441_664),
        ("10,000 gib", 10_737_418_240_000),
        ("500GB", 500_000_000_000),
        ("7 B", 7),
        ("1000", 1000),
        (1000, 1000),
        (1000.0, 1000),
        ("  2 kib ", 2048),
    ],
)
def test_a_size_has_a_unit_or_is_bytes(connect, value, size):
    hook = ScopeHook(connect(extra={**ACME, "max_bytes_per_trigger": value}))

    assert hook.defaults.max_bytes_per_trigger == size


def test_a_connection_survives_the_way_through_a_uri():
    from airflow.models.connection import Connection

    extra = {**ACME, "tenant": "t/1", "au": 7, "retry_on_error_messages": ["a&b", "re:ü"]}
    first = Connection(
        conn_id="tried", conn_type="adla_scope", login="me@acme", password="p/w?&", extra=json.dumps(extra)
    )
    second = Connection(conn_id="tried", uri=first.get_uri())

    def read(conn):
        hook = ScopeHook(connection=conn)
        return hook.service, hook.defaults, identity_of(Fields(conn), hook.service)

    assert read(second) == read(first)
    assert read(second)[2].secret == "p/w?&"
    assert read(second)[0].requests["retry_on_error_messages"] == ("a&b", "re:ü")


@pytest.mark.parametrize(
    ("hook_class", "conn_type"), [(ScopeHook, "adla_scope"), (AdlsGen1Hook, "adls_gen1")]
)
def test_every_field_of_the_form_is_read_and_every_field_that_is_read_is_in_the_form(
    monkeypatch, hook_class, conn_type
):
    read = set()
    get = Fields.get
    monkeypatch.setattr(Fields, "get", lambda self, name: read.add(name) or get(self, name))
    extra = {**ACME, "storage_account": "store", "container": "tables"}
    hook = hook_class(connection=connection(conn_type, extra=json.dumps(extra)))

    identity_of(hook._fields, hook.service)
    if hook_class is ScopeHook:
        _ = hook.defaults
    else:
        monkeypatch.setattr(hook, "list_page", lambda *_, **__: None)
        hook.test_connection()

    assert read == set(FORMS[conn_type]["conn-fields"])


def test_the_defaults_that_the_form_shows_are_those_that_hold():
    fields = FORMS["adla_scope"]["conn-fields"]
    shown = {
        name: field["schema"]["default"] for name, field in fields.items() if "default" in field["schema"]
    }
    hook = scope()

    for name, value in shown.items():
        held = getattr(hook.defaults, name, None)
        if name == "credential":
            held = "auto"
        elif name.startswith("http_"):
            given = hook.service.requests
            held = given["repeating"].retries if name == "http_retries" else given["timeout_seconds"]
        elif name == "max_bytes_per_trigger":
            held = f"{held // 1024**3} GiB"
        assert held == value, name


def test_the_form_hides_what_is_secret():
    hidden = {
        name
        for form in FORMS.values()
        for name, field in form["conn-fields"].items()
        if field["schema"].get("format") == "password"
    }

    assert hidden == {"certificate_password", "credential_kwargs"}


def test_the_forms_fit_airflows_schema_and_airflow_finds_the_hooks():
    from airflow.providers_manager import ProvidersManager

    hooks = ProvidersManager().hooks

    assert hooks["adla_scope"].hook_class_name == "airflow_provider_scope.hooks.scope.ScopeHook"
    assert hooks["adla_scope"].connection_id_attribute_name == "scope_conn_id"
    assert hooks["adls_gen1"].hook_class_name == "airflow_provider_scope.hooks.adls_gen1.AdlsGen1Hook"
    assert hooks["adls_gen1"].connection_id_attribute_name == "adls_gen1_conn_id"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("au", 0),
        ("au", "many"),
        ("au", 1.5),
        ("au", True),
        ("priority", 0),
        ("poll_interval", 0),
        ("poll_interval", float("nan")),
        ("max_files_per_trigger", 0),
        ("max_bytes_per_trigger", -1),
        ("max_bytes_per_trigger", "0 GiB"),
        ("max_bytes_per_trigger", "5 gigs"),
        ("max_bytes_per_trigger", "GiB"),
        ("max_bytes_per_trigger", "1 2 GiB"),
        ("max_bytes_per_trigger", "0.3 B"),
        ("max_bytes_per_trigger", True),
        ("max_bytes_per_trigger", float("inf")),
        ("max_bytes_per_trigger", [1]),
        ("feature_previews", 7),
        ("http_retries", -1),
        ("http_timeout_seconds", 0),
        ("retry_on_error_messages", "[1"),
        ("retry_on_error_messages", [1]),
        ("retry_on_error_messages", {"a": 1}),
        ("storage_account", "store"),
        ("container", "c@evil.example"),
        ("account_name", "acme.evil.example/"),
        ("account_name", "user@acme"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_with_its_name(name, value):
    hook = scope(**{name: value})

    with pytest.raises(InputError, match="The connection tried has "):
        _ = hook.service, hook.defaults


def test_a_connection_without_an_account_is_refused():
    with pytest.raises(InputError, match="account_name=None"):
        _ = ScopeHook(connection=connection()).service


@pytest.mark.parametrize(
    ("fields", "url", "authority"),
    [
        ({"host": "acme.azuredatalakeanalytics.net"}, "https://acme.azuredatalakeanalytics.net", None),
        ({"host": "acme.konaaccountdogfood.net"},
         "https://acme.konaaccountdogfood.net", "acme.konaaccountdogfood.net"),
        ({"host": "http://127.0.0.1:8080/acme/", "extra": '{"account_name": "acme"}'},
         "http://127.0.0.1:8080/acme", None),
        ({"host": "127.0.0.1", "port": 8080, "schema": "http", "extra": '{"account_name": "Acme"}'},
         "http://127.0.0.1:8080", None),
    ],
)  # fmt: skip
def test_the_host_says_where_the_service_is(fields, url, authority):
    service = ScopeHook(connection=connection(**fields)).service

    assert service.url == url
    assert service.authority == (authority or "acme.azuredatalakeanalytics.net")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "https://acme@evil.example",
        "https://user:s3cr3t@acme.azuredatalakeanalytics.net",
        "https://127.0.0.1.evil.example",
        "https://acme-evil.example",
        "https://[",
    ],
)
def test_a_host_of_another_account_is_refused(host):
    hook = ScopeHook(connection=connection(host=host, extra='{"account_name": "acme"}'))

    with pytest.raises(InputError) as caught:
        _ = hook.service

    assert "s3cr3t" not in str(caught.value)


def test_http_is_for_this_machine_alone():
    hook = ScopeHook(connection=connection(host="http://acme.azuredatalakeanalytics.net"))

    with pytest.raises(InputError, match="must not leave this machine unencrypted"):
        hook.get_conn()


@pytest.mark.parametrize("table", ["", "..", "a/b", ".hidden", "a b"])
def test_a_table_that_is_no_folder_name_has_no_location(table):
    hook = scope(storage_account="store", container="tables")

    with pytest.raises(InputError, match="cannot be a folder's name"):
        hook.defaults.delta_location(table)


def test_a_table_without_a_place_on_the_connection_has_no_location():
    with pytest.raises(InputError, match="delta_location is missing"):
        scope().defaults.delta_location("flights")


def test_a_connection_of_the_azure_provider_is_one_of_gen1(connect):
    extra = {"tenant": "t-1", "account_name": "acme", "managed_identity_client_id": ""}
    hook = AdlsGen1Hook(connect("azure_data_lake", login="client", password="secret", extra=extra))

    identity = identity_of(hook._fields, hook.service)

    assert hook.service.url == "https://acme.azuredatalakestore.net"
    assert (identity.kind, identity.tenant, identity.client_id, identity.secret) == (
        "client_secret",
        "t-1",
        "client",
        "secret",
    )


def test_the_long_names_of_old_forms_are_read(connect):
    extra = {"extra__azure_data_lake__account_name": "acme", "extra__azure_data_lake__tenant": "t-1"}
    hook = AdlsGen1Hook(connect("azure_data_lake", login="client", password="secret", extra=extra))

    assert hook.service.authority == "acme.azuredatalakestore.net"
    assert identity_of(hook._fields, hook.service).tenant == "t-1"
