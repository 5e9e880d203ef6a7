"""What is Azure's own: folders that are markers, pages, other accounts; against Azurite."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    InputError,
    SourceNotFoundError,
    SourceUnreadableError,
    StorageError,
)
from airflow_provider_scope.protocol.seen import is_changed
from airflow_provider_scope.stores.azure import AzureStorage
from tests.support import azurite
from tests.support.connecting import connect
from tests.support.storages import AZURITE, Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_provider_scope.values import FileEntry

pytestmark = pytest.mark.azurite


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with AZURITE.make(tmp_path) as made:
        yield made


def make_marker(place: Place, name: str) -> None:
    """Make what stands for a folder, as the portal and Hadoop do."""
    fs = azurite.filesystem(place.address)
    container = place.uri.removeprefix("abfss://").partition("@")[0]
    blob = fs.service_client.get_blob_client(container, name)
    made = blob.upload_blob(b"", metadata={"hdi_isfolder": "true"})
    asyncio.run_coroutine_threadsafe(made, fs.loop).result()


def listed(place: Place, below: str = "", **options: Any) -> list[str]:
    root = place.uri + below
    storage = connect(place.uri, place.address, **options)
    return sorted(file.path.removeprefix(root + "/") for file in storage.walk(root))


def test_a_marker_makes_an_empty_folder(place: Place) -> None:
    make_marker(place, "landing")

    assert listed(place, "/landing") == []
    assert listed(place) == []


def test_a_folder_without_a_marker_ends_with_its_last_file(place: Place) -> None:
    place.storage.replace(place.at("landing/a"), b"1")
    assert listed(place, "/landing") == ["a"]
    place.storage.delete(place.at("landing/a"))

    with pytest.raises(SourceNotFoundError) as caught:
        listed(place, "/landing")

    assert "needs a marker" in caught.value.do


def test_a_folder_whose_only_content_is_a_folder_is_there(place: Place) -> None:
    make_marker(place, "landing/2026")

    assert listed(place, "/landing") == []


def test_a_name_that_begins_like_the_folder_is_not_in_it(place: Place) -> None:
    for name in ("landing/a", "landing2/b", "landing.txt"):
        place.storage.replace(place.at(name), b"1")

    assert listed(place, "/landing") == ["a"]


def test_markers_among_files_are_no_files_and_no_names(place: Place) -> None:
    for name in ("log/a", "log/b/c"):
        place.storage.replace(place.at(name), b"1")
    for name in ("log", "log/b", "log/empty"):
        make_marker(place, name)

    assert listed(place) == ["log/a", "log/b/c"]
    assert place.storage.names(place.at("log")) == ["a"]


@pytest.mark.parametrize("page_size", [1, 2, 3, 6, 7, 8])
def test_pages_of_any_size_have_every_file_once(place: Place, page_size: int) -> None:
    names = [f"in/{n}&é {n}" for n in range(7)]
    for name in names:
        place.storage.replace(place.at(name), b"1")

    assert listed(place, page_size=page_size) == names
    storage = connect(place.uri, place.address, page_size=page_size)
    assert storage.names(place.at("in")) == [name.removeprefix("in/") for name in names]


def test_a_container_that_does_not_exist_is_a_missing_root(place: Place) -> None:
    nowhere = f"abfss://nowhere@{azurite.HOST}"

    for root in (nowhere, nowhere + "/in"):
        with pytest.raises(SourceNotFoundError):
            list(place.storage.walk(root))
    assert place.storage.names(nowhere + "/in") == []
    assert place.storage.read(nowhere + "/in/a") is None


def test_a_container_that_is_deleted_during_the_listing_is_not_an_empty_one(place: Place) -> None:
    for n in range(5):
        place.storage.replace(place.at(f"in/{n}"), b"1")
    container = place.uri.removeprefix("abfss://").partition("@")[0]
    files = connect(place.uri, place.address, page_size=1).walk(place.uri)
    next(files)
    azurite.filesystem(place.address).rm(container, recursive=True)

    with pytest.raises(SourceUnreadableError):
        list(files)


def test_a_folder_does_not_read_as_an_empty_file(place: Place) -> None:
    make_marker(place, "log")

    with pytest.raises(StorageError, match="it is a folder"):
        place.storage.read(place.at("log"))


def test_creation_times_are_told(place: Place) -> None:
    place.storage.replace(place.at("a"), b"1")

    file = next(iter(place.storage.walk(place.uri)))

    assert file.created_ms is not None
    assert 1_700_000_000_000 < file.created_ms <= file.modified_ms
    assert file.modified_ms % 1000 == 0


def test_a_uri_of_another_account_is_not_looked_for_in_this_one(place: Place) -> None:
    for call in (
        lambda uri: list(place.storage.walk(uri)),
        place.storage.names,
        place.storage.read,
        place.storage.delete,
    ):
        with pytest.raises(InputError, match="does not belong to the account devstoreaccount1"):
            call("abfss://landing@other.dfs.core.windows.net/a")


def test_requests_do_not_fill_the_log(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    policy = logging.getLogger("azure.core.pipeline.policies.http_logging_policy")
    policy.setLevel(logging.NOTSET)
    caplog.set_level(logging.INFO)
    storage = AzureStorage(azurite.filesystem(place.address), azurite.HOST)

    storage.put_if_absent(place.at("a"), b"1")
    storage.put_if_absent(place.at("a"), b"1")
    list(storage.walk(place.uri))

    assert [record.name for record in caplog.records] == []


def test_new_metadata_give_a_file_another_time_and_not_another_content(place: Place) -> None:
    fs = azurite.filesystem(place.address)
    container = place.uri.removeprefix("abfss://").partition("@")[0]
    blob = fs.service_client.get_blob_client(container, "landing/a")

    def look() -> FileEntry:
        (file,) = connect(place.uri, place.address).walk(place.at("landing"))
        return file

    def wait_for(call: Any) -> None:
        asyncio.run_coroutine_threadsafe(call, fs.loop).result()

    place.storage.replace(place.at("landing/a"), b"1")
    before = look()
    time.sleep(1.1)  # the service tells whole seconds
    wait_for(blob.set_blob_metadata({"owner": "us"}))
    touched = look()
    place.storage.replace(place.at("landing/a"), b"2")
    changed = look()

    assert before.content_md5
    assert touched.modified_ms > before.modified_ms
    status = (before.modified_ms, before.size_bytes, before.content_md5)
    assert (is_changed(touched, status), is_changed(changed, status)) == (False, True)
