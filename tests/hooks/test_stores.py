"""One connection, two readers: fsspec or REST here, and Hadoop's client in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.exceptions import InputError, SourceNotFoundError
from airflow_provider_scope.hooks.stores import hadoop_version, store_of
from airflow_provider_scope.stores.azure import AzureStorage
from airflow_provider_scope.stores.hdfs import WebHdfsStorage
from airflow_provider_scope.stores.kinds import kind_of
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.stores.objects import ObjectSource

if TYPE_CHECKING:
    from airflow_provider_scope.stores.protocol import Store

REDACTED = "(?i)secret|password|passphrase|token|credential|key|sas|signature"
HOST = "acme.dfs.core.windows.net"
LAKE = f"abfss://lake@{HOST}/landing"
KEY = "a2V5LW9mLXRoZS1hY2NvdW50"
SECRET = "the-secret-of-a-client"
SAS = "sv=2024-11-04&sig=c2lnbmF0dXJl%3D"
OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"


@pytest.fixture(autouse=True)
def no_identity_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("AUTHORITY_HOST", "CLIENT_ID", "TENANT_ID", "CLIENT_SECRET", "FEDERATED_TOKEN_FILE")
    for name in (f"AZURE_{name}" for name in names):
        monkeypatch.delenv(name, raising=False)


def azure_conf(store: Store) -> dict[str, str]:
    """The properties without what all of them begin or end with."""
    conf = dict(store.spark_conf)
    assert conf.pop("spark.redaction.regex") == REDACTED
    return {
        name.removeprefix("spark.hadoop.fs.azure.").removesuffix(f".{HOST}"): v for name, v in conf.items()
    }


def endpoint(store: Store) -> str:
    assert isinstance(store.storage, AzureStorage)
    return store.storage._client.url


def test_a_disk_needs_no_connection_and_spark_nothing():
    store = store_of("file:///data", "no_such_connection")
    assert isinstance(store.storage, LocalStorage)
    assert (store.spark_conf, store.packages, store.environment) == ({}, (), {})
    assert kind_of("file:///data").is_for_spark


@pytest.mark.parametrize(
    ("conn_type", "fields"),
    [
        ("wasb", {"login": "acme", "password": KEY}),
        ("wasb", {"host": "https://acme.blob.core.windows.net", "extra": {"shared_access_key": KEY}}),
        ("wasb", {"login": "acme", "extra": {"account_key": KEY}}),
        ("wasb", {"extra": {"extra__wasb__shared_access_key": KEY}}),
        ("adls", {"host": "acme", "password": KEY}),
        ("wasb", {"extra": {"connection_string": f"AccountName=acme;AccountKey={KEY};EndpointSuffix=x.y"}}),
    ],
)
def test_an_account_key(connect, conn_type, fields):
    store = store_of(LAKE, connect(conn_type, **fields))
    assert endpoint(store) == "https://acme.blob.core.windows.net/"
    assert store.storage._client.credential.account_key == KEY
    assert azure_conf(store) == {"account.auth.type": "SharedKey", "account.key": KEY}
    assert store.packages == (f"org.apache.hadoop:hadoop-azure:{hadoop_version()}",)


@pytest.mark.parametrize("token", [SAS, f"?{SAS}", f"https://acme.blob.core.windows.net/?{SAS}"])
def test_a_shared_access_signature(connect, token):
    store = store_of(LAKE, connect("wasb", login="acme", extra={"sas_token": token}))
    assert endpoint(store).startswith("https://acme.blob.core.windows.net/")
    assert store.storage._client._query_str.lstrip("?") == SAS
    assert azure_conf(store) == {"account.auth.type": "SAS", "sas.fixed.token": SAS}


@pytest.mark.parametrize(
    ("conn_type", "name"), [("wasb", "tenant_id"), ("azure_data_lake", "tenant"), ("azure", "tenantId")]
)
def test_the_secret_of_a_client(connect, conn_type, name):
    extra = {name: "contoso"}
    store = store_of(LAKE, connect(conn_type, login="app", password=SECRET, extra=extra))
    assert endpoint(store) == "https://acme.blob.core.windows.net/"
    assert azure_conf(store) == {
        "account.auth.type": "OAuth",
        "account.oauth.provider.type": f"{OAUTH}.ClientCredsTokenProvider",
        "account.oauth2.client.endpoint": "https://login.microsoftonline.com/contoso/oauth2/token",
        "account.oauth2.client.id": "app",
        "account.oauth2.client.secret": SECRET,
    }


def test_the_connection_of_gen1_files_serves_a_table_on_azure_storage(connect):
    extra = {"account_name": "old", "tenant": "contoso"}
    conn_id = connect("adls_gen1", login="app", password=SECRET, extra=extra)
    assert azure_conf(store_of(LAKE, conn_id))["account.oauth2.client.secret"] == SECRET


def test_the_workload_identity_of_gen1_files_is_that_of_a_table_on_azure_storage(connect):
    extra = {"account_name": "old", "credential": "workload_identity", "tenant": "contoso"}
    conf = azure_conf(store_of(LAKE, connect("adls_gen1", login="app", password=SECRET, extra=extra)))
    assert (conf["account.oauth2.client.id"], conf["account.oauth2.msi.tenant"]) == ("app", "contoso")


def test_an_identity_that_azure_manages(connect):
    extra = {"managed_identity_client_id": "me"}
    store = store_of(LAKE, connect("wasb", login="acme", extra=extra))
    assert azure_conf(store) == {
        "account.auth.type": "OAuth",
        "account.oauth.provider.type": f"{OAUTH}.MsiTokenProvider",
        "account.oauth2.client.id": "me",
    }


def test_without_a_connection_spark_is_who_the_worker_is(monkeypatch):
    assert azure_conf(store_of(LAKE))["account.oauth.provider.type"] == f"{OAUTH}.MsiTokenProvider"
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", "/var/token")
    monkeypatch.setenv("AZURE_TENANT_ID", "contoso")
    monkeypatch.setenv("AZURE_CLIENT_ID", "app")
    assert azure_conf(store_of(LAKE)) == {
        "account.auth.type": "OAuth",
        "account.oauth.provider.type": f"{OAUTH}.WorkloadIdentityTokenProvider",
        "account.oauth2.msi.authority": "https://login.microsoftonline.com/",
        "account.oauth2.msi.tenant": "contoso",
        "account.oauth2.client.id": "app",
        "account.oauth2.token.file": "/var/token",
    }
    monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
    assert azure_conf(store_of(LAKE))["account.oauth2.client.secret"] == SECRET


@pytest.mark.parametrize("host", ["https://login.chinacloudapi.cn/", "login.chinacloudapi.cn"])
def test_spark_asks_for_its_tokens_where_the_worker_does(connect, monkeypatch, host):
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", host)
    conn_id = connect("wasb", login="app", password=SECRET, extra={"tenant_id": "contoso"})

    conf = azure_conf(store_of(LAKE, conn_id))
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", "/var/token")

    endpoint = "https://login.chinacloudapi.cn/contoso/oauth2/token"
    assert conf["account.oauth2.client.endpoint"] == endpoint
    assert azure_conf(store_of(LAKE))["account.oauth2.msi.authority"] == "https://login.chinacloudapi.cn/"


def test_another_cloud_has_its_own_endpoint(connect):
    conn_id = connect("wasb", login="acme", password=KEY)
    store = store_of("abfss://lake@acme.dfs.core.usgovcloudapi.net/x", conn_id)
    assert endpoint(store) == "https://acme.blob.core.usgovcloudapi.net/"
    assert store.spark_conf["spark.hadoop.fs.azure.account.key.acme.dfs.core.usgovcloudapi.net"] == KEY


def test_an_emulator_is_reached_by_its_connection_string(connect):
    text = f"AccountName=acme;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:10000/acme;"
    store = store_of(LAKE, connect("wasb", extra={"connection_string": text}))
    assert endpoint(store) == "http://127.0.0.1:10000/acme/"


@pytest.mark.parametrize(
    ("conn_type", "fields"),
    [
        ("wasb", {"login": "other", "password": KEY}),
        ("adls", {"host": "other", "password": KEY}),
        ("wasb", {"host": "https://other.blob.core.windows.net", "password": KEY}),
        ("wasb", {"extra": {"connection_string": f"AccountName=other;AccountKey={KEY}"}}),
        ("wasb", {"extra": {"sas_token": f"https://other.blob.core.windows.net/?{SAS}"}}),
    ],
)
def test_a_secret_of_another_account_goes_nowhere(connect, conn_type, fields):
    with pytest.raises(InputError, match=r"is for the account other, and the location is on acme") as caught:
        store_of(LAKE, connect(conn_type, **fields))
    assert not any(secret in str(caught.value) for secret in (KEY, SAS))


def test_adlfs_does_not_take_its_credentials_from_the_environment(connect, monkeypatch):
    other = f"AccountName=other;AccountKey={KEY};EndpointSuffix=core.windows.net"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", other)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    store = store_of(LAKE, connect("wasb", login="acme", password="bXk="))
    assert endpoint(store) == "https://acme.blob.core.windows.net/"
    assert store.storage._client.credential.account_key == "bXk="
    with pytest.raises(InputError, match="AZURE_STORAGE_CONNECTION_STRING"):
        store_of(LAKE)


def test_a_connection_that_is_no_credential_for_azure_storage_is_refused(connect):
    text = "AccountName=acme;EndpointSuffix=core.windows.net"
    with pytest.raises(InputError, match="AccountKey or SharedAccessSignature"):
        store_of(LAKE, connect("wasb", extra={"connection_string": text}))
    extra = {"account_name": "old", "credential": "azure_cli", "tenant": "contoso"}
    with pytest.raises(InputError, match="credential='azure_cli'"):
        store_of(LAKE, connect("adls_gen1", extra=extra))
    extra = {"account_name": "old", "certificate_path": "/c.pem", "tenant": "contoso"}
    with pytest.raises(InputError, match="credential='certificate'"):
        store_of(LAKE, connect("adls_gen1", extra=extra))
    extra = {"account_name": "old", "credential_class": "my.Identity"}
    with pytest.raises(InputError, match="credential='class'"):
        store_of(LAKE, connect("adls_gen1", extra=extra))


@pytest.mark.parametrize(
    "fields",
    [
        {"login": "acme", "password": KEY},
        {"extra": {"sas_token": SAS}},
        {"login": "app", "password": SECRET, "extra": {"tenant_id": "contoso"}},
    ],
)
def test_a_store_shows_no_secret(connect, fields):
    shown = repr(store_of(LAKE, connect("wasb", **fields)))
    assert shown.startswith("Store(storage=<")
    assert not any(secret in shown for secret in (KEY, SAS, SECRET))


def test_webhdfs_without_a_connection_asks_as_the_workers_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HADOOP_USER_NAME", "loader")
    with Emulator(tmp_path) as emulator:
        (tmp_path / "landing").mkdir()
        (tmp_path / "landing" / "a").write_bytes(b"12")
        root = f"webhdfs://127.0.0.1:{emulator.port}/landing"
        store = store_of(root)
        assert [(file.path, file.size_bytes) for file in store.storage.walk(root)] == [(f"{root}/a", 2)]
        assert isinstance(store.storage, WebHdfsStorage)
        assert (store.environment, store.spark_conf) == ({"HADOOP_USER_NAME": "loader"}, {})
        with pytest.raises(SourceNotFoundError):
            list(store.storage.walk(f"{root}/none"))


def test_webhdfs_asks_as_the_connections_user(connect):
    conn_id = connect("webhdfs", host="standby,namenode", login="loader", port=9870)
    assert store_of("webhdfs://namenode:9870/x", conn_id).environment == {"HADOOP_USER_NAME": "loader"}
    assert store_of("swebhdfs://namenode:9871/x", conn_id).storage._files.http.base_url == (
        "https://namenode:9871"
    )
    with pytest.raises(InputError, match="is for standby, namenode, and the location is on other"):
        store_of("webhdfs://other:9870/x", conn_id)


def test_gen1_is_not_for_spark(connect):
    extra = {"account_name": "acme", "tenant": "contoso"}
    conn_id = connect("adls_gen1", login="app", password=SECRET, extra=extra)
    store = store_of("adl://acme.azuredatalakestore.net/x", conn_id)
    assert isinstance(store.storage, WebHdfsStorage)
    assert not kind_of("adl://acme.azuredatalakestore.net/x").is_for_spark


def test_any_other_store_of_fsspec_is_a_source():
    import fsspec

    fsspec.filesystem("memory").pipe_file("/landing/a", b"123")
    store = store_of("memory:///landing")
    assert isinstance(store.storage, ObjectSource)
    assert [file.size_bytes for file in store.storage.walk("memory:///landing")] == [3]


def test_a_store_that_nobody_knows_is_an_input_error():
    with pytest.raises(InputError, match=r"The store nowhere:// could not be opened"):
        store_of("nowhere://x")
    with pytest.raises(InputError, match=r"The store nowhere:// takes no connection"):
        store_of("nowhere://x", "lake")


def test_the_version_of_hadoop_is_that_of_sparks_jars():
    assert hadoop_version().split(".")[0] == "3"
