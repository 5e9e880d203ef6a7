"""From a location to its storage."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.stores.local import LocalStorage, local_path
from airflow_provider_scope.stores.protocol import canonical_root, canonical_uri, open_storage


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/data/in", "file:///data/in"),
        ("/data/in/", "file:///data/in"),
        ("//data///in//", "file:///data/in"),
        ("/data/./x/../in", "file:///data/in"),
        ("/../data", "file:///data"),
        ("/", "file:///"),
        ("file:///data/in", "file:///data/in"),
        ("file:/data/in", "file:///data/in"),
        ("file:////data/in/", "file:///data/in"),
        ("file:///", "file:///"),
        ("/data/a b%20#é", "file:///data/a b%20#é"),
        ("file:///data/a%20b", "file:///data/a%20b"),
    ],
)
def test_every_spelling_of_a_location_has_one_uri(location: str, expected: str) -> None:
    assert canonical_uri(location) == expected
    assert canonical_uri(expected) == expected


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("data/in", "The location 'data/in' is relative"),
        ("./data", "The location './data' is relative"),
        ("~/data", "The location '~/data' is relative"),
        ("", "The location '' names no folder"),
        ("file://host/data", "The location 'file://host/data' is relative"),
    ],
)
def test_relative_locations_are_refused(location: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        canonical_uri(location)

    assert caught.value.what.startswith(message)
    assert caught.value.do


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("abfss://landing@Acme.dfs.core.windows.net/a/b/", "abfss://landing@acme.dfs.core.windows.net/a/b"),
        ("abfs://landing@acme.dfs.core.windows.net//a//b", "abfss://landing@acme.dfs.core.windows.net/a/b"),
        ("ABFSS://landing@acme.dfs.core.windows.net", "abfss://landing@acme.dfs.core.windows.net"),
        ("abfss://landing@acme.dfs.core.windows.net/", "abfss://landing@acme.dfs.core.windows.net"),
        (
            "abfss://landing@acme.dfs.core.windows.net/a b%20#é?x",
            "abfss://landing@acme.dfs.core.windows.net/a b%20#é?x",
        ),
        (
            "abfss://landing@acme.dfs.core.chinacloudapi.cn/a",
            "abfss://landing@acme.dfs.core.chinacloudapi.cn/a",
        ),
        ("abfss://$web@acme.dfs.core.windows.net/a", "abfss://$web@acme.dfs.core.windows.net/a"),
        ("adl://Acme.azuredatalakestore.net/a//b/", "adl://acme.azuredatalakestore.net/a/b"),
        ("adl://acme.azuredatalakestore.net/", "adl://acme.azuredatalakestore.net"),
        ("webhdfs://NameNode:9870/a/../b", "webhdfs://namenode:9870/b"),
        ("swebhdfs://[::1]:9871/a", "swebhdfs://[::1]:9871/a"),
    ],
)
def test_every_spelling_of_a_remote_location_has_one_uri(location: str, expected: str) -> None:
    assert canonical_uri(location) == expected
    assert canonical_uri(expected) == expected
    assert canonical_root(location) == expected


@pytest.mark.parametrize(
    ("location", "why", "do"),
    [
        (
            "abfss://my_conn@in/a/b",
            "has a connection in it, as Airflow's ObjectStoragePath writes it",
            "write abfss://in@<account>.dfs.core.windows.net/a/b, and storage_conn_id='my_conn'",
        ),
        ("abfs://in/a", "names no account", "write abfss://in@<account>.dfs.core.windows.net/a"),
        (
            "abfss://landing@acme.blob.core.windows.net/a",
            "names the Blob endpoint",
            "write abfss://landing@acme.dfs.core.windows.net/a",
        ),
        (
            "wasbs://landing@acme.blob.core.windows.net/a",
            "is on wasbs://, which is not supported",
            "write abfss://landing@acme.dfs.core.windows.net/a",
        ),
        (
            "https://acme.blob.core.windows.net/landing/a/",
            "is on https://, which is not supported",
            "write abfss://landing@acme.dfs.core.windows.net/a",
        ),
        (
            "az://my_conn@in/a",
            "is on az://, which is not supported",
            "write abfss://in@<account>.dfs.core.windows.net/a, and storage_conn_id='my_conn'",
        ),
        (
            "abfss://Landing@acme.dfs.core.windows.net/a",
            "names no container: 'Landing'",
            "write its name, of 3 to 63",
        ),
        ("abfss://c@acme.dfs.core.windows.net/a", "names no container: 'c'", "write its name, of 3 to 63"),
        ("abfss://landing@acme.dfs.core.windows.net/a\\b", "is not valid", "write abfss://<container>@"),
        ("adl:///a", "names no account", "write adl://<account>.azuredatalakestore.net/…"),
        ("webhdfs://namenode/a", "names no port", "write webhdfs://namenode:9870/a"),
        ("swebhdfs://namenode/a", "names no port", "write swebhdfs://namenode:9871/a"),
        ("webhdfs://me@namenode:9870/a", "names a user", "write webhdfs://namenode:9870/a; me belongs"),
        (
            "hdfs://namenode:8020/a",
            "is on hdfs://, which is not supported",
            "write the namenode's HTTP address: webhdfs://namenode:9870/a",
        ),
    ],
)
def test_what_cannot_be_read_by_everybody_is_refused_with_what_to_write(
    location: str, why: str, do: str
) -> None:
    for canonical in (canonical_uri, canonical_root):
        with pytest.raises(InputError) as caught:
            canonical(location)

        assert caught.value.what.startswith(f"The location {location!r} {why}")
        assert caught.value.do.startswith(do)


@pytest.mark.parametrize(
    ("location", "root", "reason"),
    [
        ("gs://bucket", "gs://bucket", "gcsfs calls its create-if-absent experimental"),
        ("memory:///a", "memory:///a", "it ends with its process"),
        ("sftp://host/a", "sftp://host/a", "nothing shows that it refuses to create a file twice"),
    ],
)
def test_a_store_without_an_atomic_creation_is_a_source_and_nothing_else(
    location: str, root: str, reason: str
) -> None:
    assert canonical_root(location) == root
    with pytest.raises(InputError) as caught:
        canonical_uri(location)

    assert "can hold sources, but not tables or checkpoints: " + reason in caught.value.what


def test_a_connection_in_a_source_is_refused_with_what_to_write() -> None:
    with pytest.raises(InputError) as caught:
        canonical_root("s3://my_conn@bucket/a")

    assert caught.value.do == "write s3://bucket/a, and storage_conn_id='my_conn'"


@pytest.mark.parametrize("location", ["s3://bucket/a//b/", "s3a://bucket/a/b", "S3N://bucket/a/./b"])
def test_a_bucket_has_one_name_and_holds_control_files(location: str) -> None:
    assert canonical_uri(location) == canonical_root(location) == "s3://bucket/a/b"
    assert canonical_uri("s3a://my.bucket-1") == "s3://my.bucket-1"


@pytest.mark.parametrize("bucket", ["", "a", "My-Bucket", "my_bucket", "-ab", "a" * 64])
def test_what_is_no_name_of_a_bucket_is_refused_with_what_is(bucket: str) -> None:
    with pytest.raises(InputError, match="names no bucket") as caught:
        canonical_uri(f"s3://{bucket}/a")

    assert caught.value.do.startswith("write s3://<bucket>/")


def test_a_local_uri_is_opened_on_the_local_disk() -> None:
    assert isinstance(open_storage("file:///data"), LocalStorage)
    assert local_path("file:///data/a b%20") == "/data/a b%20"


@pytest.mark.parametrize("uri", ["/data", "file:/data", "file://host/data", "s3://bucket/data"])
def test_what_is_no_canonical_local_uri_is_not_taken_for_a_path(uri: str) -> None:
    with pytest.raises(ValueError, match="is not a file:///"):
        local_path(uri)


@pytest.mark.parametrize("uri", ["abfss://landing@acme.dfs.core.windows.net/a", "s3://bucket/data"])
def test_a_uri_that_needs_a_connection_is_not_opened_without_one(uri: str) -> None:
    with pytest.raises(InputError, match="cannot be opened without a connection"):
        open_storage(uri)
