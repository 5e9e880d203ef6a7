"""Answers of Blob Storage and S3, page by page, as the services write them."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_scope.exceptions import SourceUnreadableError
from airflow_provider_scope.stores.azure import Page, entries, is_missing, parse_page
from airflow_provider_scope.stores.calls import Failure
from airflow_provider_scope.stores.s3 import S3Storage
from airflow_provider_scope.values import FileEntry

BASE = "abfss://landing@acme.dfs.core.windows.net/"
HEAD = '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="https://x/">'
AT = "Sat, 21 Nov 2026 20:01:03 GMT"
AT_MS = 1795291263000


def page(*blobs: str, marker: str = "<NextMarker />", prefix: str = "") -> bytes:
    return f"{HEAD}{prefix}<Blobs>{''.join(blobs)}</Blobs>{marker}</EnumerationResults>".encode()


def blob(name: str, size: int = 5, more: str = "", metadata: str = "<Metadata />") -> str:
    return (
        f"<Blob><Name>{name}</Name><Properties><Creation-Time>Fri, 20 Nov 2026 00:00:00 GMT</Creation-Time>"
        f"<Last-Modified>{AT}</Last-Modified><Etag>0x8DE</Etag>{more}<Content-Length>{size}</Content-Length>"
        f"<BlobType>BlockBlob</BlobType></Properties>{metadata}<OrMetadata /></Blob>"
    )


def files(*blobs: str) -> list[FileEntry]:
    return entries(parse_page(page(*blobs)), BASE)


def test_a_blob_is_a_file_with_times_in_milliseconds() -> None:
    assert files(blob("a/b.parquet")) == [FileEntry(AT_MS, BASE + "a/b.parquet", 5, 1795132800000)]


def test_the_order_of_the_elements_and_white_space_do_not_matter() -> None:
    reordered = f"""<Blob>
      <Name>a</Name>
      <Properties>
        <Content-Length>7</Content-Length>
        <Last-Modified>{AT}</Last-Modified>
      </Properties>
    </Blob>"""

    assert files(reordered, blob("b")) == [
        FileEntry(AT_MS, BASE + "a", 7, None),
        FileEntry(AT_MS, BASE + "b", 5, 1795132800000),
    ]


def test_the_md5_of_a_block_blob_tells_its_content() -> None:
    md5 = "<Content-MD5>sQqNsWTwhUgZtBkUt3/x0A==</Content-MD5>"
    listed = files(
        blob("a").replace("<BlobType>", f"{md5}<BlobType>"),
        blob("b").replace("<BlobType>", "<Content-MD5 /><BlobType>"),
        blob("c").replace("<BlobType>", "<Content-MD5></Content-MD5><BlobType>"),
        # Its bytes can change under a sum that somebody set once.
        blob("d").replace("<BlobType>BlockBlob", f"{md5}<BlobType>PageBlob"),
        blob("e", metadata=f"<Metadata><x>{md5}</x></Metadata>"),
        blob("f").replace("<BlobType>", "<Content-MD5>cut"),
    )

    assert [file.content_md5 for file in listed] == ["sQqNsWTwhUgZtBkUt3/x0A==", *[None] * 5]


def test_a_blob_without_a_modification_time_has_the_time_0() -> None:
    assert files("<Blob><Name>a</Name><Content-Length>7</Content-Length></Blob>")[0].modified_ms == 0


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a &amp; b&lt;c&gt;.txt", "a & b<c>.txt"),
        ("&amp;lt;", "&lt;"),
        ("&quot;&apos;", "\"'"),
        ("line&#xD;&#10;break", "line\r\nbreak"),
        ("a%20b+c", "a%20b+c"),
        ("café-日本-\U0001f600", "café-日本-\U0001f600"),
        (" a ", " a "),
    ],
)
def test_names_are_what_they_are(written: str, name: str) -> None:
    assert files(blob(written))[0].path == BASE + name


def test_a_name_that_xml_cannot_hold_arrives_encoded_and_is_decoded() -> None:
    encoded = blob("a").replace("<Name>a</Name>", '<Name Encoded="true">a%EF%BF%BEb%2520&amp;</Name>')
    plain = blob("a").replace("<Name>a</Name>", '<Name Encoded="false">a%20b</Name>')

    assert [file.path for file in files(encoded, plain)] == [BASE + "a\ufffeb%20&", BASE + "a%20b"]


@pytest.mark.parametrize(
    "marker",
    [
        blob("folder", 0, metadata="<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"),
        blob("folder", 0, metadata="<Metadata><Hdi_isfolder>True</Hdi_isfolder></Metadata>"),
        blob("folder", 0, more="<ResourceType>directory</ResourceType>"),
        blob("folder/", 0),
    ],
)
def test_what_stands_for_a_folder_is_no_file(marker: str) -> None:
    assert [file.path for file in files(blob("a"), marker, blob("b"))] == [BASE + "a", BASE + "b"]


def test_an_empty_file_is_a_file() -> None:
    more = "<ResourceType>file</ResourceType>"
    metadata = "<Metadata><hdi_isfolder>false</hdi_isfolder></Metadata>"

    assert [
        file.size_bytes for file in files(blob("a", 0), blob("b", 0, more), blob("c", 0, "", metadata))
    ] == [
        0,
        0,
        0,
    ]


def test_prefixes_of_a_list_by_folder_are_no_files() -> None:
    assert files("<BlobPrefix><Name>a/</Name></BlobPrefix>", blob("b"))[0].path == BASE + "b"


@pytest.mark.parametrize(
    ("marker", "next_page"),
    [
        ("<NextMarker />", ""),
        ("<NextMarker/>", ""),
        ("<NextMarker></NextMarker>", ""),
        ("<NextMarker>2!72!MDAw&amp;--</NextMarker>", "2!72!MDAw&--"),
    ],
)
def test_a_page_tells_where_the_next_one_begins(marker: str, next_page: str) -> None:
    assert parse_page(b"\xef\xbb\xbf" + page(marker=marker)) == Page((), next_page)


def test_a_container_without_blobs_has_an_empty_page() -> None:
    assert parse_page(f"{HEAD}<Blobs /><NextMarker /></EnumerationResults>".encode()) == Page((), "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>a proxy's page</html>",
        page(blob("a"))[:-1],
        page(blob("a"))[:300],
        page(blob("a"), marker=""),
        f"{HEAD}<Blobs />".encode(),
    ],
)
def test_a_page_that_is_not_whole_is_not_read(body: bytes) -> None:
    with pytest.raises(ValueError, match="the page is incomplete"):
        parse_page(body)


@pytest.mark.parametrize(
    "broken",
    [
        blob("a").replace("<Name>a</Name>", ""),
        blob("a").replace("<Content-Length>5</Content-Length>", ""),
        blob("a").replace("Nov", "Nox"),
        blob("a").replace("03 GMT", "03 +0100"),
        blob("a").replace("20:01:03", "20:01"),
    ],
)
def test_a_blob_that_cannot_be_understood_is_an_error(broken: str) -> None:
    with pytest.raises(ValueError, match=r"no name|not in|not a time"):
        files(blob("b"), broken)


@pytest.mark.parametrize(
    ("status", "code", "missing"),
    [
        (404, "BlobNotFound", True),
        (404, "ContainerNotFound", True),
        (404, "ResourceNotFound", False),  # without rights
        (404, "", False),  # of a proxy
        (403, "BlobNotFound", False),
        (None, "BlobNotFound", False),
    ],
)
def test_only_the_service_says_that_nothing_has_a_name(status, code, missing) -> None:
    assert is_missing(Failure(status=status, code=code)) is missing


# ---- a listing of S3; the store itself is tested by make test-s3 -------------------------------------


class Client:
    """Gives the pages of one listing; each is asked for by the token of the one before."""

    meta = SimpleNamespace(endpoint_url="https://s3.eu-central-1.amazonaws.com")

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.pages = {None if n == 0 else str(n): page for n, page in enumerate(pages)}

    def list_objects_v2(self, *, ContinuationToken: str | None = None, **_: Any) -> dict[str, Any]:  # noqa: N803
        return self.pages[ContinuationToken]


def s3_page(*names: str, after: str | None = None, is_last: bool = False) -> dict[str, Any]:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    contents = [{"Key": f"in/{name}", "Size": 1, "LastModified": noon, "ETag": ""} for name in names]
    return {"Name": "b", "IsTruncated": not is_last, "Contents": contents, "NextContinuationToken": after}


def test_every_page_is_read_also_one_without_files_in_the_middle():
    client = Client(s3_page("a", after="1"), s3_page(after="2"), s3_page("b", is_last=True))

    assert [file.path for file in S3Storage(client).walk("s3://b/in")] == ["s3://b/in/a", "s3://b/in/b"]
    assert S3Storage(client).names("s3://b/in") == ["a", "b"]


@pytest.mark.parametrize("pages", [[s3_page("a")], [s3_page("a", after="1"), s3_page("b", after="1")]])
def test_a_listing_that_has_no_next_page_is_an_error_and_not_an_end(pages):
    with pytest.raises(SourceUnreadableError, match="the next page is the page that was read"):
        list(S3Storage(Client(*pages)).walk("s3://b/in"))
