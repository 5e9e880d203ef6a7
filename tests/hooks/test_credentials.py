"""As whom a connection talks to the services."""

from __future__ import annotations

import datetime as dt
import json
import sys

import pytest

from airflow_provider_scope.exceptions import InputError, ServiceAuthError
from airflow_provider_scope.hooks.credentials import (
    Identity,
    acquire,
    allowed_classes,
    credential_of,
    identity_of,
    tokens_of,
)
from airflow_provider_scope.hooks.scope import ScopeHook
from tests.hooks import our_credentials

GOOD, TELLING = "tests.hooks.our_credentials.Good", "tests.hooks.our_credentials.Telling"
ALLOWED = "AIRFLOW__ADLA_SCOPE__ALLOWED_CREDENTIAL_CLASSES"


def identity(host="acme.azuredatalakeanalytics.net", login=None, password=None, **extra) -> Identity:
    from airflow.sdk import Connection

    extra = {"account_name": "acme", **extra}
    connection = Connection(
        conn_id="tried",
        conn_type="adla_scope",
        host=host,
        login=login,
        password=password,
        extra=json.dumps(extra),
    )
    hook = ScopeHook(connection=connection)
    return identity_of(hook._fields, hook.service)


@pytest.fixture
def certificate(tmp_path):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pem-password"),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return str(path)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"login": "c", "password": "s", "tenant": "t"}, "client_secret"),
        ({"login": "c", "password": "s", "tenant": "t", "credential": "azure_cli"}, "azure_cli"),
        ({"login": "c", "certificate_path": "/x.pem", "tenant": "t"}, "certificate"),
        ({}, "default"),
        ({"credential": "auto"}, "default"),
        ({"credential": "managed_identity"}, "managed_identity"),
        ({"credential": "workload_identity"}, "workload_identity"),
        ({"host": "http://127.0.0.1:1"}, "emulator"),
        ({"host": "http://127.0.0.1:1", "credential": "azure_cli"}, "azure_cli"),
    ],
)
def test_the_kind_is_named_or_follows_from_the_fields(fields, kind):
    assert identity(**fields).kind == kind


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"credential": "password"}, "expected one of auto, client_secret"),
        ({"password": "s3cr3t"}, "lacks tenant, login"),
        ({"credential": "client_secret"}, r"lacks tenant, login \(client ID\), password \(client secret\)"),
        ({"credential": "certificate"}, "lacks tenant, login .*, certificate_path"),
        ({"credential": "class"}, "lacks credential_class"),
        ({"credential": "emulator"}, "the service is not on this machine"),
        ({"credential_kwargs": "{s3cr3t"}, "expected a JSON object"),
        ({"credential_kwargs": ["s3cr3t"]}, "expected a JSON object"),
        ({"certificate_password": 7}, "certificate_password='…'"),
    ],
)
def test_credentials_that_are_not_complete_are_refused(fields, text):
    with pytest.raises(InputError, match=text) as caught:
        identity(**fields)

    assert "s3cr3t" not in str(caught.value)


def test_each_kind_is_a_credential_of_azure_identity(certificate, monkeypatch):
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", "/var/token")
    who = {"login": "client", "tenant": "11111111-1111-4111-8111-111111111111"}
    kinds = {
        "client_secret": identity(**who, password="s"),
        "certificate": identity(**who, certificate_path=certificate, certificate_password="pem-password"),
        "managed_identity": identity(credential="managed_identity", managed_identity_client_id="m"),
        "workload_identity": identity(**who, credential="workload_identity"),
        "azure_cli": identity(credential="azure_cli", tenant=who["tenant"]),
        "default": identity(managed_identity_client_id="m", workload_identity_tenant_id=who["tenant"]),
    }

    assert {kind: type(credential_of(found)).__name__ for kind, found in kinds.items()} == {
        "client_secret": "ClientSecretCredential",
        "certificate": "CertificateCredential",
        "managed_identity": "ManagedIdentityCredential",
        "workload_identity": "WorkloadIdentityCredential",
        "azure_cli": "AzureCliCredential",
        "default": "DefaultAzureCredential",
    }


def test_no_credential_class_is_allowed_by_default():
    assert allowed_classes() == []


@pytest.mark.parametrize("listed", ["", "tests.hooks.our_credentials", f"{GOOD}2, other.Class"])
def test_a_class_that_is_not_listed_is_refused_and_not_imported(monkeypatch, listed):
    monkeypatch.setenv(ALLOWED, listed)
    monkeypatch.delitem(sys.modules, "tests.hooks.our_credentials")

    with pytest.raises(InputError, match="is not allowed"):
        identity(credential_class=GOOD, credential_kwargs='{"name": "x"}')

    assert "tests.hooks.our_credentials" not in sys.modules


def test_a_class_that_is_listed_is_made_with_its_arguments_and_asked_for_the_data_lakes_token(monkeypatch):
    monkeypatch.setenv(ALLOWED, f"other.Class,\n {GOOD}")
    monkeypatch.setattr(our_credentials, "SCOPES", [])

    token = acquire(identity(credential_class=GOOD, credential_kwargs='{"name": "x"}'))

    assert (token.value, token.expires_at) == ("token of x", 4_000_000_000.0)
    assert our_credentials.SCOPES == ["https://datalake.azure.net/.default"]


def test_equal_connections_share_a_token_and_others_do_not():
    first = identity(login="c", password="s", tenant="t")

    assert tokens_of(first) is tokens_of(identity(login="c", password="s", tenant="t"))
    assert tokens_of(first) is not tokens_of(identity(login="c", password="other", tenant="t"))


def test_a_token_that_cannot_be_had_is_an_error_without_the_secret(monkeypatch):
    monkeypatch.setenv(ALLOWED, TELLING)
    found = identity(credential_class=TELLING, credential_kwargs={"key": "s3cr3t"})

    with pytest.raises(ServiceAuthError) as caught:
        acquire(found)

    assert caught.value.what.endswith("with the credential 'class': RuntimeError: could not log in with ***")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert caught.value.is_retryable


def test_an_identity_does_not_show_its_secrets():
    found = identity(
        login="c",
        password="s3cr3t",
        tenant="t",
        certificate_password="s3cr3t",
        credential_kwargs={"key": "s3cr3t"},
    )

    assert "s3cr3t" not in repr(found)
    assert "s3cr3t" not in repr(tokens_of(found))


def test_the_emulator_gets_a_text_that_is_no_token():
    assert acquire(identity(host="http://127.0.0.1:1")).value == "emulator"
