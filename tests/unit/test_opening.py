"""From a location to its storage."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.storage.local import LocalStorage, local_path
from airflow_provider_scope.storage.opening import canonical_uri, open_storage


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
        ("", "The location '' is relative"),
        ("file://host/data", "The location 'file://host/data' is relative"),
        ("s3://bucket/data", "The location 's3://bucket/data' is on s3://, which is not supported."),
        ("abfss://c@a/x", "The location 'abfss://c@a/x' is on abfss://, which is not supported."),
    ],
)
def test_other_locations_are_refused(location: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        canonical_uri(location)

    assert caught.value.what.startswith(message)
    assert caught.value.do


def test_a_local_uri_is_opened_on_the_local_disk() -> None:
    assert isinstance(open_storage("file:///data"), LocalStorage)
    assert local_path("file:///data/a b%20") == "/data/a b%20"


@pytest.mark.parametrize("uri", ["/data", "file:/data", "file://host/data", "s3://bucket/data"])
def test_what_is_no_canonical_local_uri_is_not_taken_for_a_path(uri: str) -> None:
    with pytest.raises(ValueError, match="is not a file:///"):
        local_path(uri)


def test_a_uri_without_a_storage_is_refused() -> None:
    with pytest.raises(ValueError, match="no storage for"):
        open_storage("s3://bucket/data")
