"""Answers that Azure may give and Azurite does not: the service here is a list of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import SourceUnreadableError, StorageError
from airflow_provider_scope.stores.azure import AzureCalls, AzureStorage
from airflow_provider_scope.stores.calls import Repeating
from tests.support import azurite
from tests.support.connecting import connect
from tests.support.faulty_service import Answer, Fault, in_front_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.faulty_service import FaultyService

ROOT = f"abfss://lake@{azurite.HOST}/in"


@pytest.fixture
def service() -> Iterator[FaultyService]:
    with in_front_of(f"http://127.0.0.1:9/{azurite.ACCOUNT}") as service:
        yield service


def page(*names: str, marker: str = "") -> Answer:
    blobs = "".join(
        f"<Blob><Name>{name}</Name><Properties><Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified>"
        "<Content-Length>1</Content-Length></Properties></Blob>"
        for name in names
    )
    body = (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults>'
        f"<Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
    )
    return Answer(200, {"Content-Type": "application/xml"}, body.encode())


def answers(service: FaultyService, *pages: Answer) -> None:
    service.faults = [Fault(lambda method, target: "comp=list" in target, answer=one) for one in pages]


EMPTY_PAGES = [
    pytest.param([page(marker="m1"), page(marker="m2"), page("in/a")], ["a"], id="at the beginning"),
    pytest.param([page("in/a", marker="m1"), page(marker="m2"), page("in/b")], ["a", "b"], id="in between"),
    pytest.param([page("in/a", marker="m1"), page()], ["a"], id="at the end"),
]


@pytest.mark.parametrize(("pages", "names"), EMPTY_PAGES)
def test_a_page_without_blobs_is_not_the_end_of_the_listing(
    service: FaultyService, pages: list[Answer], names: list[str]
) -> None:
    answers(service, *pages)

    assert [file.path for file in connect(ROOT, service.url).walk(ROOT)] == [f"{ROOT}/{n}" for n in names]

    answers(service, *pages)
    assert connect(ROOT, service.url).names(ROOT) == names


def test_a_listing_that_does_not_go_on_is_an_error_and_not_an_end(service: FaultyService) -> None:
    answers(service, page("in/a", marker="m1"), page("in/b", marker="m1"), page("in/b", marker="m1"))

    with pytest.raises(SourceUnreadableError, match="the next page is the page that was read"):
        list(connect(ROOT, service.url).walk(ROOT))


def test_names_whose_listing_does_not_go_on_are_an_error_and_not_read_for_ever(
    service: FaultyService,
) -> None:
    answers(service, *[page("in/a", marker="m1")] * 9)

    with pytest.raises(StorageError, match="the next page is the page that was read"):
        connect(ROOT, service.url).names(ROOT)


# ---- what is asked again -------------------------------------------------------------------------------

BUSY = Answer(503, {"x-ms-error-code": "ServerBusy"})
CREATED = Answer(201, {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"})
THERE = Answer(409, {"x-ms-error-code": "BlobAlreadyExists"})


def put(service: FaultyService, *replies: Answer) -> tuple[list[float], Callable[[], bytes]]:
    """Return the waits, and how a file is created by a service that answers so."""
    service.faults = [Fault(lambda method, _: method == "PUT", answer=one) for one in replies]
    waits: list[float] = []
    fs = azurite.filesystem(service.url)
    calls = AzureCalls(fs, Repeating(sleep=waits.append, jitter=lambda: 1.0))
    storage = AzureStorage(fs, azurite.HOST, calls=calls)
    return waits, lambda: storage.put_if_absent(f"{ROOT}/a", b"data")


def test_a_file_is_created_after_tries_with_longer_waits(service: FaultyService) -> None:
    waits, create = put(service, BUSY, Answer(429), Answer(500), CREATED)

    assert create()
    assert waits == [1.0, 2.0, 4.0]


def test_a_throttled_call_waits_as_long_as_the_service_asks(service: FaultyService) -> None:
    waits, create = put(service, Answer(429, {"Retry-After": "7"}), CREATED)

    assert create()
    assert waits == [7.0]


def test_the_tries_of_a_creation_end(service: FaultyService) -> None:
    waits, create = put(service, *[BUSY] * 9)

    with pytest.raises(StorageError):
        create()

    assert (waits, len(service.asked)) == ([1.0, 2.0, 4.0], 4)


def test_a_refusal_is_not_asked_again(service: FaultyService) -> None:
    waits, create = put(service, Answer(403, {"x-ms-error-code": "AuthorizationFailure"}))

    with pytest.raises(StorageError):
        create()

    assert (waits, len(service.asked)) == ([], 1)


@pytest.mark.parametrize("before", [[], [BUSY]])
def test_a_file_of_somebody_else_is_not_created(service: FaultyService, before: list[Answer]) -> None:
    waits, create = put(service, *before, THERE)
    service.faults.append(
        Fault(
            lambda method, _: method == "GET",
            answer=Answer(206, {"Content-Range": "bytes 0-5/6", **CREATED.headers}, b"theirs"),
        )
    )

    assert create() == b"theirs"
    assert len(waits) == len(before)
