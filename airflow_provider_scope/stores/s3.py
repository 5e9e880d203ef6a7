"""Files on S3, and on stores with its protocol, through botocore's client."""

from __future__ import annotations

import logging
import re
import secrets
import threading
from base64 import b64encode
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider_scope.exceptions import InputError, StorageError
from airflow_provider_scope.stores.calls import PASSING, REFUSED, Calls, Failure, Repeating
from airflow_provider_scope.stores.protocol import (
    CONTROL_FILE_LIMIT_BYTES,
    bad,
    existing,
    split,
    with_connection,
)
from airflow_provider_scope.values import FileEntry, milliseconds, no_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


CONFIG: dict[str, Any] = {
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    # Stores that only resemble S3 refuse the checksums that AWS takes; the signature covers the data.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}
"""Settings of every client that is given to ``S3Calls``."""

_PASSING_CODES = ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown")
# By their names, because this module can be imported without botocore.
_NO_IDENTITY = ("NoCredentialsError", "PartialCredentialsError")


class S3Calls(Calls):
    """Makes calls of botocore's client."""

    files_advice = (
        "check the bucket and the connection's rights (s3:ListBucket, s3:GetObject, s3:PutObject, "
        "s3:DeleteObject)"
    )
    source_advice = "check the bucket, the region and the endpoint of the connection"
    rights = "s3:ListBucket, or correct its credentials"

    def __init__(self, repeating: Repeating | None = None) -> None:
        super().__init__(repeating)
        # At DEBUG botocore writes the headers of each request, and with them the token of a session.
        logging.getLogger("botocore").setLevel(logging.INFO)

    @staticmethod
    def failure_of(err: BaseException) -> Failure:
        response = getattr(err, "response", None)
        response = response if isinstance(response, dict) else {}  # the answer in botocore's ``ClientError``
        metadata, error = response.get("ResponseMetadata") or {}, response.get("Error") or {}
        status = metadata.get("HTTPStatusCode")
        if not isinstance(status, int):
            has_identity = type(err).__name__ not in _NO_IDENTITY
            text = next(iter(str(err).strip().splitlines()), "")
            return Failure(
                code=type(err).__name__, message=text, may_pass=has_identity, is_refused=not has_identity
            )
        code = str(error.get("Code", ""))
        return Failure(
            status=status,
            code="" if code == str(status) else code,
            message=str(error.get("Message", "")),
            request_id=metadata.get("RequestId"),
            retry_after=(metadata.get("HTTPHeaders") or {}).get("retry-after"),
            may_pass=status in PASSING or code in _PASSING_CODES,
            is_refused=status in REFUSED,
        )


def is_missing(failure: Failure) -> bool:
    """Whether the service says that no object has this key. Other 404s, such as a bucket's, do not."""
    return failure.status == 404 and failure.code == "NoSuchKey"


def is_existing(failure: Failure) -> bool:
    """Whether a creation was refused because the name is taken; a conflict (409) does not say so."""
    return failure.status == 412 and failure.code == "PreconditionFailed"


def is_not_implemented(failure: Failure) -> bool:
    return failure.status == 501 or failure.code == "NotImplemented"


def ignores_if_none_match(endpoint: str, bucket: str) -> InputError:
    return InputError(
        f"The store {endpoint} does not refuse to create a file twice: in the bucket {bucket} it ignores "
        "If-None-Match. Two runs could both believe that they logged a batch.",
        kept="everything; only a trial file was written, and deleted",
        do="use a table and a checkpoint on AWS, or on a store whose release notes mention conditional "
        "puts. Source folders may stay there",
    )


# ---- How a location is written ----

SCHEME = "s3://"

# Names with capitals or underscores are older than the rule; Hadoop's client cannot open them.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def canonical(location: str) -> str:
    """Write it as ``s3://<bucket>/…``, also for ``s3a://``, which is Hadoop's name for the same.

    :raises InputError: The location has a connection in it, or names no bucket.
    """
    _, authority, path = split(location)
    if "@" in authority:
        conn_id, bucket = authority.rsplit("@", 1)
        raise with_connection(location, conn_id, f"{SCHEME}{bucket}{path}")
    if not _BUCKET.fullmatch(authority):
        raise bad(
            location,
            f"names no bucket: {authority!r} is not a valid name of one",
            "write s3://<bucket>/…, with a name of 3 to 63 lowercase letters, digits, dots and hyphens",
        )
    return f"{SCHEME}{authority}{path}"


# ---- Files ----

_PROBE = re.compile(r"\.[0-9a-f]{32}\.probe")
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_AWS = (".amazonaws.com", ".amazonaws.com.cn")

_NEEDS_MARKER = (
    "On S3, a folder disappears with its last object: a folder that may be empty needs a marker, an empty "
    "object whose name ends with a slash"
)

PAGE_SIZE = 1000
"""Objects in one page. The service allows no more."""


class S3Storage:
    """The buckets that one identity reaches.

    A folder exists as long as an object lies below it. An object whose name ends with a slash is the marker
    of a folder, not a file. So a root without any of these is missing, not empty; the bucket itself may be
    empty. A bucket that does not exist is an error, never absence.

    The service gives times in whole seconds, so a file seems up to a second older than it is. A change within
    the second shows in the ETag, if that is a sum of the content and not of the parts of an upload.

    :param client: botocore's client for ``s3``, made with ``CONFIG``.
    """

    def __init__(self, client: Any, *, calls: S3Calls | None = None, page_size: int = PAGE_SIZE) -> None:
        self._client = client
        self._calls = calls or S3Calls()
        self._page_size = page_size
        # AWS has refused to create an object twice since 2024; some other stores ignore the header.
        self._proven_buckets: set[str] | None = None if is_aws(client.meta.endpoint_url) else set()
        self._proof_lock = threading.Lock()

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below ``root``, a page at a time.

        A file that is created or deleted during the listing may or may not be in it.
        """
        bucket, folder = _parts(root)
        prefix = f"{folder}/" if folder else ""
        has_objects = False
        with self._calls.listing(root):
            for page in self._pages(bucket, prefix):
                objects = page.get("Contents", [])
                has_objects = has_objects or bool(objects)
                yield from [
                    _entry(bucket, item)
                    for item in objects
                    if not item["Key"].endswith("/") and not _is_probe(item["Key"])
                ]
            if has_objects or not folder:
                return
            # An object with exactly this name is the first of those that begin with it.
            first_objects = next(self._pages(bucket, folder)).get("Contents", [])[:1]
            if [item["Key"] for item in first_objects] == [folder]:
                raise self._calls.unreadable(root, "it is a file, not a folder")
            raise no_root(root, _NEEDS_MARKER)

    def names(self, folder: str) -> list[str]:
        bucket, name = _parts(folder)
        prefix = f"{name}/" if name else ""
        with self._calls.failing("list", folder):
            pages = self._pages(bucket, prefix, Delimiter="/")
            keys = [item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", [])]
        return sorted(key for key in keys if key and not _is_probe(key))

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        bucket, key = _parts(path)

        def download() -> bytes:
            answer = self._client.get_object(Bucket=bucket, Key=key)
            # Not `with answer["Body"]`: that gives the stream without botocore's check of the length.
            with closing(answer["Body"]) as body:
                if answer["ContentLength"] > at_most:
                    raise self._calls.failed("read", path, f"it is larger than {at_most:,} bytes")
                data: bytes = body.read()
            _check_is_s3(answer)
            return data

        with self._calls.failing("read", path):
            data: bytes | None = self._calls.repeated(download, none_if=is_missing)
        return data

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        """Create a file with its content: one PutObject with ``If-None-Match: *``.

        :raises InputError: The store lets a file be created twice.
        """
        with self._calls.failing("create", path):
            self._prove_refusal(path)
            return self._create(path, data)

    def _create(self, path: str, data: bytes) -> bytes:
        return data if self._put(path, data, none_if=is_existing, IfNoneMatch="*") else existing(self, path)

    def replace(self, path: str, data: bytes) -> None:
        with self._calls.failing("replace", path):
            self._put(path, data)

    def _put(
        self, path: str, data: bytes, *, none_if: Callable[[Failure], bool] | None = None, **arguments: Any
    ) -> bool:
        """Write an object; False if it was refused as ``none_if`` says."""
        bucket, key = _parts(path)

        def put() -> bool:
            _check_is_s3(self._client.put_object(Bucket=bucket, Key=key, Body=data, **arguments))
            return True

        return self._calls.repeated(put, none_if=none_if) is not None

    def delete(self, path: str) -> None:
        """Delete a file. S3 answers the same whether it existed or not."""
        bucket, key = _parts(path)
        with self._calls.failing("delete", path):
            delete = partial(self._client.delete_object, Bucket=bucket, Key=key)
            self._calls.repeated(delete, none_if=is_missing)

    def _prove_refusal(self, path: str) -> None:
        """Check once per bucket that a store other than AWS refuses to create a file twice.

        A trial file is created beside the file, where the identity may write, under a name that listings
        leave out.

        :raises InputError: The store does not refuse it.
        """
        bucket, _ = _parts(path)
        with self._proof_lock:
            if self._proven_buckets is None or bucket in self._proven_buckets:
                return
            trial = f"{path.rpartition('/')[0]}/.{secrets.token_hex(16)}.probe"
            try:
                refuses = [self._create(trial, data) for data in (b"", b"twice")] == [b"", b""]
            except Exception as err:
                if not is_not_implemented(self._calls.failure_of(err)):
                    raise
                refuses = False
            finally:
                # A trial file that stays is empty, and listings leave it out.
                with suppress(StorageError):
                    self.delete(trial)
            if not refuses:
                raise ignores_if_none_match(self._client.meta.endpoint_url, bucket)
            self._proven_buckets.add(bucket)

    def _pages(self, bucket: str, prefix: str, **arguments: Any) -> Iterator[Any]:
        """List page by page.

        :raises ValueError: An answer is not a page of a listing, or the next page would be the same.
        """
        arguments = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": self._page_size, **arguments}
        position: dict[str, Any] = {}
        while True:
            list_page = partial(self._client.list_objects_v2, **arguments, **position)
            page = self._calls.repeated(list_page)
            # The page of a proxy does not end a listing, nor does an answer without `IsTruncated`.
            if "IsTruncated" not in page or "Name" not in page:
                msg = "the answer is not a page of a listing"
                raise ValueError(msg)
            next_position = {"ContinuationToken": page.get("NextContinuationToken")}
            if page["IsTruncated"] and (next_position == position or None in next_position.values()):
                msg = "the next page is the page that was read"
                raise ValueError(msg)
            yield page
            if not page["IsTruncated"]:
                return
            position = next_position


def is_aws(endpoint: str) -> bool:
    return (urlsplit(endpoint).hostname or "").endswith(_AWS)


def _parts(uri: str) -> tuple[str, str]:
    """Split a canonical URI into bucket and key."""
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    return bucket, key


def _is_probe(key: str) -> bool:
    return key.endswith(".probe") and bool(_PROBE.fullmatch(key.rpartition("/")[2]))


def _entry(bucket: str, item: Any) -> FileEntry:
    """Convert an object in a page of a listing.

    :raises KeyError: The service did not give its time or length.
    """
    sum_of_content = _MD5.fullmatch(item.get("ETag", ""))
    md5 = b64encode(bytes.fromhex(sum_of_content[1])).decode() if sum_of_content else None
    modified_ms = milliseconds(item["LastModified"])
    return FileEntry(modified_ms, f"{SCHEME}{bucket}/{item['Key']}", item["Size"], None, md5)


def _check_is_s3(answer: Any) -> None:
    """Check that an answer is of the service: that of a proxy would have no ETag.

    :raises ValueError: The answer has no ETag.
    """
    if not answer.get("ETag"):
        msg = "the answer is not from S3: it has no ETag"
        raise ValueError(msg)
