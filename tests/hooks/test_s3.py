"""A connection of type aws: what botocore and Hadoop's client are given of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.s3 import _time
from airflow_provider_scope.hooks.stores import hadoop_version, store_of
from airflow_provider_scope.stores.s3 import S3Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.stores.protocol import Store

LAKE = "s3://lake/landing"
KEY_ID = "AKIAIOSFODNN7EXAMPLE"
SECRET = "the-secret-of-a-key"
TOKEN = "the-token-of-a-session"
KEY = {"login": KEY_ID, "password": SECRET}
PROVIDER = "org.apache.hadoop.fs.s3a.{}AWSCredentialsProvider"
ALWAYS = {
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    "spark.hadoop.fs.s3a.create.conditional.enabled": "true",
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|credential|key|sas|signature",
}


@pytest.fixture(autouse=True)
def nothing_but_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "DEFAULT_REGION", "ENDPOINT_URL"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")


@pytest.fixture
def store(connect: Callable[..., str]) -> Callable[..., Store]:
    return lambda **fields: store_of(LAKE, connect("aws", **fields))


def client_of(store: Store) -> Any:
    assert isinstance(store.storage, S3Storage)
    return store.storage._client


def conf_of(store: Store) -> dict[str, str]:
    """The properties without those that each S3 store has."""
    assert {name: store.spark_conf[name] for name in ALWAYS} == ALWAYS
    more = store.spark_conf.keys() - ALWAYS
    return {name.removeprefix("spark.hadoop.fs.s3a."): store.spark_conf[name] for name in more}


def credentials_of(store: Store) -> tuple[str | None, ...]:
    found = client_of(store)._get_credentials()
    return (found.access_key, found.secret_key, found.token)


@pytest.mark.parametrize(
    "fields",
    [KEY, {"extra": {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET}}],
)
def test_an_access_key(store, fields):
    found = store(**fields)
    assert credentials_of(found) == (KEY_ID, SECRET, None)
    assert client_of(found).meta.endpoint_url == "https://s3.amazonaws.com"
    assert conf_of(found) == {
        "aws.credentials.provider": PROVIDER.format("Simple"),
        "access.key": KEY_ID,
        "secret.key": SECRET,
        # Hadoop would ask the machine for a region; from this one AWS leads to the bucket's own.
        "endpoint.region": "us-east-1",
    }
    assert found.packages == (f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",)


def test_a_key_of_a_session_in_a_region(store):
    found = store(**KEY, extra={"aws_session_token": TOKEN, "region_name": "eu-west-1"})
    assert credentials_of(found) == (KEY_ID, SECRET, TOKEN)
    assert client_of(found).meta.endpoint_url == "https://s3.eu-west-1.amazonaws.com"
    assert conf_of(found) == {
        "aws.credentials.provider": PROVIDER.format("Temporary"),
        "access.key": KEY_ID,
        "secret.key": SECRET,
        "session.token": TOKEN,
        "endpoint.region": "eu-west-1",
    }


@pytest.mark.parametrize(
    "extra",
    [
        {"endpoint_url": "http://minio:9000/"},
        {"endpoint_url": "http://sts:1", "service_config": {"s3": {"endpoint_url": "http://minio:9000"}}},
    ],
)
def test_a_store_that_resembles_s3(store, extra):
    found = store(**KEY, extra=extra)
    assert client_of(found).meta.endpoint_url == "http://minio:9000"
    assert client_of(found).meta.config.s3["addressing_style"] == "path"
    assert {name: value for name, value in conf_of(found).items() if "key" not in name} == {
        "aws.credentials.provider": PROVIDER.format("Simple"),
        "endpoint": "http://minio:9000",
        "endpoint.region": "us-east-1",
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
    }


def test_a_store_whose_buckets_are_hosts(store):
    extra = {
        "endpoint_url": "https://r2.example.com",
        "region_name": "auto",
        "config_kwargs": {"s3": {"addressing_style": "virtual"}},
    }
    found = conf_of(store(**KEY, extra=extra))
    assert (found["connection.ssl.enabled"], found["endpoint.region"]) == ("true", "auto")
    assert "path.style.access" not in found


def test_the_identity_and_the_service_of_the_environment(store, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio:9000")
    for found in (store_of(LAKE), store()):
        assert credentials_of(found)[:2] == (KEY_ID, SECRET)
        # Hadoop's own chain reads the same variables of a key, and no others.
        assert conf_of(found) == {
            "endpoint": "https://minio:9000",
            "endpoint.region": "eu-west-1",
            "connection.ssl.enabled": "true",
        }


def test_a_connection_has_no_key_of_the_environment_beside_its_own(store, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    assert credentials_of(store(**KEY)) == (KEY_ID, SECRET, None)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({**KEY, "extra": {"role_arn": "arn:aws:iam::1:role/x"}}, "role_arn"),
        ({"extra": {"profile_name": "x"}}, "profile_name"),
        ({"login": KEY_ID}, "password"),
        ({"password": SECRET}, "login"),
        ({**KEY, "extra": {"aws_session_token": [TOKEN]}}, "aws_session_token"),
    ],
)
def test_what_would_be_another_identity_is_refused_without_its_secrets(store, fields, name):
    with pytest.raises(InputError, match=f"The connection tried has {name}=") as caught:
        store(**fields)
    assert SECRET not in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_the_key_of_another_service_is_not_sent(connect):
    with pytest.raises(InputError, match="The connection tried has conn_type='wasb': expected aws") as caught:
        store_of(LAKE, connect("wasb", **KEY))
    assert SECRET not in str(caught.value)


def test_secrets_are_not_shown(store):
    found = store(**KEY, extra={"aws_session_token": TOKEN})
    assert SECRET not in repr(found)
    assert TOKEN not in repr(found)


@pytest.mark.parametrize(
    "text", ["2026-11-22T20:00:17.000Z", "2026-11-22T20:00:17+00:00", "Sun, 22 Nov 2026 20:00:17 GMT"]
)
def test_a_time_is_read_as_botocore_reads_it(text):
    assert _time(text).timestamp() == 1_795_377_617.0
