"""What S3 and the stores that resemble it may answer, beyond what every storage does."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.delta.log import newest_version
from airflow_provider_scope.exceptions import (
    InputError,
    SourceUnreadableError,
    StorageError,
    TableUnreadableError,
)
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.recovery import NO_BASELINE
from airflow_provider_scope.stores.calls import Repeating
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.stores.s3 import S3Calls, S3Storage
from tests.support import s3
from tests.support.delta_engine import numbered
from tests.support.faulty_service import Answer, Fault, in_front_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.faulty_service import FaultyService

pytestmark = pytest.mark.s3


@pytest.fixture
def service() -> Iterator[FaultyService]:
    with in_front_of(s3.address()) as service:
        yield service


@pytest.fixture
def bucket() -> str:
    return s3.make_bucket(s3.address())


@pytest.fixture
def client() -> Any:
    return s3.access(s3.address()).client()


def storage_of(service: FaultyService, waits: list[float] | None = None, page_size: int = 1000) -> S3Storage:
    calls = S3Calls(Repeating(sleep=(waits if waits is not None else []).append, jitter=lambda: 1.0))
    return S3Storage(s3.access(service.url).client(), calls=calls, page_size=page_size)


def error(status: int, code: str) -> Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>text</Message></Error>"
    return Answer(status, {"Content-Type": "application/xml"}, body.encode())


def puts(method: str, target: str) -> bool:
    return method == "PUT"


# ---- stores that create a file twice -------------------------------------------------------------------


def test_a_store_that_takes_no_notice_of_the_condition_is_refused_before_the_first_file(
    service, bucket, client
):
    forward = service.forward
    service.forward = lambda method, target, headers, body: forward(
        method, target, {name: value for name, value in headers.items() if name != "If-None-Match"}, body
    )
    client.put_object(Bucket=bucket, Key="log/0", Body=b"theirs")
    storage = storage_of(service)

    for _ in range(2):
        with pytest.raises(InputError, match="does not refuse to create a file twice") as caught:
            storage.put_if_absent(f"s3://{bucket}/log/0", b"ours")

    assert service.url in caught.value.what
    assert bucket in caught.value.what
    assert not caught.value.is_retryable
    assert [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]] == ["log/0"]
    assert storage.read(f"s3://{bucket}/log/0") == b"theirs"


def test_a_store_that_does_not_know_the_condition_is_refused(service, bucket):
    service.faults.append(Fault(puts, answer=error(501, "NotImplemented"), times=1000))

    with pytest.raises(InputError, match="does not refuse to create a file twice"):
        storage_of(service).put_if_absent(f"s3://{bucket}/log/0", b"ours")


def test_a_store_is_tried_once_and_a_trial_that_stays_is_never_listed(service, bucket, client):
    service.faults.append(Fault(lambda method, _: method == "DELETE", answer=Answer(503), times=1000))
    storage = storage_of(service)

    for name, data, stored in (("0", b"1", b"1"), ("1", b"1", b"1"), ("0", b"2", b"1")):
        assert storage.put_if_absent(f"s3://{bucket}/log/{name}", data) == stored

    tried = [asked for asked in service.asked if asked.startswith("PUT") and asked.endswith(".probe")]
    assert len(tried) == 2
    assert len(client.list_objects_v2(Bucket=bucket)["Contents"]) == 3
    assert storage.names(f"s3://{bucket}/log") == ["0", "1"]
    assert sorted(file.path for file in storage.walk(f"s3://{bucket}")) == [
        f"s3://{bucket}/log/0",
        f"s3://{bucket}/log/1",
    ]


def test_a_trial_that_fails_proves_nothing(service, bucket):
    service.faults.append(Fault(puts, answer=error(403, "AccessDenied"), times=1))
    storage = storage_of(service)

    with pytest.raises(StorageError, match="403 AccessDenied"):
        storage.put_if_absent(f"s3://{bucket}/log/0", b"1")

    assert storage.put_if_absent(f"s3://{bucket}/log/0", b"1")


def test_aws_itself_is_not_tried():
    access = s3.S3Access(key_id="k", secret="s", region="eu-west-1")
    assert S3Storage(access.client())._proven_buckets is None
    assert S3Storage(s3.access("http://127.0.0.1:9").client())._proven_buckets == set()


# ---- conflicts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_two_writers_that_meet_are_asked_to_come_back(service, bucket, code):
    waits: list[float] = []
    storage = storage_of(service, waits)
    assert storage.put_if_absent(f"s3://{bucket}/log/first", b"1")
    service.faults.append(Fault(puts, answer=error(409, code), times=2))

    assert storage.put_if_absent(f"s3://{bucket}/log/0", b"ours") == b"ours"
    assert waits == [1.0, 2.0]


def test_a_request_that_says_to_wait_is_sent_again_after_that(service, bucket):
    waits: list[float] = []
    service.faults.append(Fault(puts, answer=Answer(503, {"Retry-After": "7"})))

    storage_of(service, waits).replace(f"s3://{bucket}/a", b"1")

    assert waits == [7.0]


# ---- listings ------------------------------------------------------------------------------------------


def test_a_listing_has_more_files_than_a_page(service, bucket, client):
    for number in range(1003):
        client.put_object(Bucket=bucket, Key=f"in/{number:04}", Body=b"")
    storage = storage_of(service)

    assert [file.path for file in storage.walk(f"s3://{bucket}/in")] == [
        f"s3://{bucket}/in/{number:04}" for number in range(1003)
    ]
    assert storage.names(f"s3://{bucket}/in") == [f"{number:04}" for number in range(1003)]
    assert sum("list-type=2" in asked for asked in service.asked) == 4


def test_a_page_that_fails_is_an_error_and_not_an_end(service, bucket, client):
    for number in range(7):
        client.put_object(Bucket=bucket, Key=f"in/{number}", Body=b"")
    storage = storage_of(service, page_size=3)
    for call, expected in (
        (lambda: list(storage.walk(f"s3://{bucket}/in")), SourceUnreadableError),
        (lambda: storage.names(f"s3://{bucket}/in"), StorageError),
    ):
        service.faults[:] = [
            Fault(lambda *asked: "list-type=2" in asked[1], answer=Answer(500), times=9, skip=2)
        ]
        with pytest.raises(expected, match=r"ould not (be listed|list)"):
            call()


def test_markers_of_folders_are_no_files(service, bucket, client):
    for key in ("in/", "in/sub/", "in/sub/a"):
        client.put_object(Bucket=bucket, Key=key, Body=b"")
    storage = storage_of(service)

    assert [file.path for file in storage.walk(f"s3://{bucket}/in")] == [f"s3://{bucket}/in/sub/a"]
    assert storage.names(f"s3://{bucket}/in/sub") == ["a"]
    client.delete_object(Bucket=bucket, Key="in/sub/a")
    assert list(storage.walk(f"s3://{bucket}/in")) == []


def test_the_sum_of_the_content_tells_what_the_time_does_not(service, bucket, client):
    storage = storage_of(service)
    seen = []
    for data in (b"one", b"two"):
        client.put_object(Bucket=bucket, Key="in/a", Body=data)
        seen += [file.content_md5 for file in storage.walk(f"s3://{bucket}/in")]
    assert seen == ["+XxdKZQb+xsv2rCHSQargg==", "uKn3Fdu2T9XFbneDxoIKYQ=="]

    # That of an upload in parts is one of the parts.
    upload = client.create_multipart_upload(Bucket=bucket, Key="in/a")["UploadId"]
    about = {"Bucket": bucket, "Key": "in/a", "UploadId": upload}
    etag = client.upload_part(**about, PartNumber=1, Body=b"one")["ETag"]
    parts: Any = {"Parts": [{"ETag": etag, "PartNumber": 1}]}
    client.complete_multipart_upload(**about, MultipartUpload=parts)
    assert [(file.size_bytes, file.content_md5) for file in storage.walk(f"s3://{bucket}/in")] == [(3, None)]


# ---- tables ---------------------------------------------------------------------------------------------


def test_a_table_is_looked_at_as_on_a_disk(service, bucket, client, tmp_path: Path):
    here, there, storage = f"file://{tmp_path}", f"s3://{bucket}/t", storage_of(service)
    assert newest_version(there, storage) == -1
    for seq in (0, 1):
        ours = numbered("app", seq)
        write_deltalake(str(tmp_path), pa.table({"a": [seq]}), mode="append", commit_properties=ours)
    for path in (tmp_path / "_delta_log").iterdir():
        if path.is_file():
            client.put_object(Bucket=bucket, Key=f"t/_delta_log/{path.name}", Body=path.read_bytes())

    found = probe(there, "app", NO_BASELINE, storage)

    assert found == probe(here, "app", NO_BASELINE, LocalStorage())
    assert found.version == newest_version(there, storage) == 1
    service.faults.append(Fault(lambda *_: True, answer=error(403, "AccessDenied"), times=1000))
    with pytest.raises(TableUnreadableError, match="403 AccessDenied"):
        probe(there, "app", NO_BASELINE, storage)


def test_the_token_of_a_session_is_in_no_log(service, bucket, caplog):
    access = replace(s3.access(service.url), session_token="the-token-of-a-session")
    with caplog.at_level(logging.DEBUG):
        assert S3Storage(access.client(), calls=S3Calls()).put_if_absent(f"s3://{bucket}/a", b"1")
    assert "the-token-of-a-session" not in caplog.text
    assert s3.SECRET not in caplog.text
