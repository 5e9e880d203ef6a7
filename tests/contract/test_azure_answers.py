"""Answers that Azure may give and Azurite does not: the service here is a list of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import SourceUnreadableError
from tests.support import azurite
from tests.support.connecting import connect
from tests.support.faulty_service import Answer, Fault, in_front_of

if TYPE_CHECKING:
    from collections.abc import Iterator

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
