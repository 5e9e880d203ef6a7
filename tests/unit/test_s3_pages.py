"""A listing of S3 has all of its pages; the store itself is tested by `make test-s3`."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_scope.exceptions import SourceUnreadableError
from airflow_provider_scope.stores.s3 import S3Storage


class Client:
    """Gives the pages of one listing; each is asked for by the token of the one before."""

    meta = SimpleNamespace(endpoint_url="https://s3.eu-central-1.amazonaws.com")

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.pages = {None if n == 0 else str(n): page for n, page in enumerate(pages)}

    def list_objects_v2(self, *, ContinuationToken: str | None = None, **_: Any) -> dict[str, Any]:  # noqa: N803
        return self.pages[ContinuationToken]


def page(*names: str, after: str | None = None, is_last: bool = False) -> dict[str, Any]:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    contents = [{"Key": f"in/{name}", "Size": 1, "LastModified": noon, "ETag": ""} for name in names]
    return {"Name": "b", "IsTruncated": not is_last, "Contents": contents, "NextContinuationToken": after}


def test_every_page_is_read_also_one_without_files_in_the_middle():
    client = Client(page("a", after="1"), page(after="2"), page("b", is_last=True))

    assert [file.path for file in S3Storage(client).walk("s3://b/in")] == ["s3://b/in/a", "s3://b/in/b"]
    assert S3Storage(client).names("s3://b/in") == ["a", "b"]


@pytest.mark.parametrize("pages", [[page("a")], [page("a", after="1"), page("b", after="1")]])
def test_a_listing_that_has_no_next_page_is_an_error_and_not_an_end(pages):
    with pytest.raises(SourceUnreadableError, match="the next page is the page that was read"):
        list(S3Storage(Client(*pages)).walk("s3://b/in"))
