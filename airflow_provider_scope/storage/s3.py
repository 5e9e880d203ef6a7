"""Files on S3, and on stores with its protocol, through botocore's client."""

from __future__ import annotations

import re
import secrets
import threading
from base64 import b64encode
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider_scope.core.files import FileEntry, no_root
from airflow_provider_scope.exceptions import StorageError
from airflow_provider_scope.storage.azure_calls import without_secrets
from airflow_provider_scope.storage.protocol import CONTROL_FILE_LIMIT_BYTES
from airflow_provider_scope.storage.s3_calls import S3Calls, is_existing, is_missing, is_not_implemented
from airflow_provider_scope.storage.s3_errors import failed, failing, takes_no_notice, unreadable
from airflow_provider_scope.storage.s3_uris import SCHEME

if TYPE_CHECKING:
    from collections.abc import Iterator

_CREATOR = "created-by"
_PROBE = re.compile(r"\.[0-9a-f]{32}\.probe")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_AWS = (".amazonaws.com", ".amazonaws.com.cn")

_NEEDS_MARKER = (
    "On S3, a folder disappears with its last object: a folder that may be empty needs a marker, an empty "
    "object whose name ends with a slash"
)

PAGE_SIZE = 1000
"""Objects of one page, the most the service gives."""


class S3Storage:
    """The buckets that one identity reaches.

    A folder exists as long as an object lies below it; one whose name ends with a slash is its marker, and no
    file. So a root without any of these is missing, not empty; the bucket itself may be empty. A bucket that
    does not exist is an error, never absence.

    The service gives times in whole seconds, so a file seems up to a second older than it is. Its ETag, where
    it is a sum of the content and not of the parts of an upload, tells what changed within the second.

    :param client: botocore's client for ``s3``, made with ``s3_calls.CONFIG``.
    """

    def __init__(self, client: Any, *, calls: S3Calls | None = None, page_size: int = PAGE_SIZE) -> None:
        self._client = client
        self._calls = calls or S3Calls()
        self._page_size = page_size
        # AWS has refused to create an object twice since 2024; of others some take no notice of the header.
        self._proven: set[str] | None = None if is_aws(client.meta.endpoint_url) else set()
        self._proving = threading.Lock()

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below ``root``, a page at a time.

        What is deleted or created during the listing is in it or not.
        """
        bucket, folder = _parts(root)
        prefix = f"{folder}/" if folder else ""
        found = False
        try:
            for page in self._pages(bucket, prefix):
                objects = page.get("Contents", [])
                found = found or bool(objects)
                yield from [
                    _entry(bucket, one)
                    for one in objects
                    if not one["Key"].endswith("/") and not _is_probe(one["Key"])
                ]
            if found or not folder:
                return
            # Whatever has this name is first among those that begin with it.
            first = next(self._pages(bucket, folder)).get("Contents", [])[:1]
        except Exception as err:  # noqa: BLE001 - whatever the client raises, it is not absence
            raise unreadable(root, err) from without_secrets(err)
        if [one["Key"] for one in first] == [folder]:
            raise unreadable(root, "it is a file, not a folder")
        raise no_root(root, _NEEDS_MARKER)

    def names(self, folder: str) -> list[str]:
        """List the names of the files in ``folder``."""
        bucket, name = _parts(folder)
        prefix = f"{name}/" if name else ""
        with failing("list", folder):
            pages = self._pages(bucket, prefix, Delimiter="/")
            keys = [one["Key"].removeprefix(prefix) for page in pages for one in page.get("Contents", [])]
        return sorted(key for key in keys if key and not _is_probe(key))

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        """Read a control file."""
        bucket, key = _parts(path)

        def download() -> bytes | None:
            try:
                answer = self._client.get_object(Bucket=bucket, Key=key)
            except Exception as err:
                if is_missing(err):
                    return None
                raise
            # Not as a context of its own: that gives the stream without its check of the length.
            with closing(answer["Body"]) as body:
                if answer["ContentLength"] > at_most:
                    raise failed("read", path, f"it is larger than {at_most:,} bytes")
                data: bytes = body.read()
            _check_is_s3(answer)
            return data

        with failing("read", path):
            found: bytes | None = self._calls.repeated(download)
        return found

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file with its content: one PutObject with ``If-None-Match: *``.

        A request without an answer may have taken effect, and its repetition is refused then. So each call
        leaves a token in the object's metadata, which tells whose it is.

        :raises InputError: The store does not refuse to create a file twice.
        """
        with failing("create", path):
            self._prove(path)
            return self._create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file at once."""
        with failing("replace", path):
            self._put(path, data)

    def delete(self, path: str) -> None:
        """Delete a file; S3 says the same whether it was there or not."""
        bucket, key = _parts(path)
        with failing("delete", path):
            try:
                self._calls.repeated(self._client.delete_object, Bucket=bucket, Key=key)
            except Exception as err:
                if not is_missing(err):
                    raise

    def _put(self, path: str, data: bytes, **how: Any) -> None:
        bucket, key = _parts(path)

        def put() -> None:
            _check_is_s3(self._client.put_object(Bucket=bucket, Key=key, Body=data, **how))

        self._calls.repeated(put)

    def _create(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists; False if it does, and is not of this call."""
        bucket, key = _parts(path)
        token = secrets.token_hex(16)
        try:
            self._put(path, data, IfNoneMatch="*", Metadata={_CREATOR: token})
        except Exception as err:
            if not is_existing(err):
                raise
            about = self._calls.repeated(self._client.head_object, Bucket=bucket, Key=key)
            found: str | None = about["Metadata"].get(_CREATOR)
            return found == token
        return True

    def _prove(self, path: str) -> None:
        """See once, before the first file is created, that a store that is not AWS refuses a second one.

        It is tried beside the file, where the identity may write, under a name that no listing gives.

        :raises InputError: It does not.
        """
        bucket, _ = _parts(path)
        with self._proving:
            if self._proven is None or bucket in self._proven:
                return
            trial = f"{path.rpartition('/')[0]}/.{secrets.token_hex(16)}.probe"
            try:
                refuses = self._create(trial, b"") and not self._create(trial, b"")
            except Exception as err:
                if not is_not_implemented(err):
                    raise
                refuses = False
            finally:
                # It is empty, and no listing gives it.
                with suppress(StorageError):
                    self.delete(trial)
            if not refuses:
                raise takes_no_notice(self._client.meta.endpoint_url, bucket)
            self._proven.add(bucket)

    def _pages(self, bucket: str, prefix: str, **how: str) -> Iterator[Any]:
        """Give the pages of a listing.

        :raises ValueError: One is not a page of this listing, or the next one would be the same.
        """
        at: dict[str, str] = {}
        while True:
            page = self._calls.repeated(
                self._client.list_objects_v2,
                **{"Bucket": bucket, "Prefix": prefix, "MaxKeys": self._page_size, **how, **at},
            )
            # A proxy's page is no end of a listing, nor is an answer that does not say whether it goes on.
            if "IsTruncated" not in page or "Name" not in page:
                msg = "the answer is not a page of a listing"
                raise ValueError(msg)
            coming = {"ContinuationToken": page.get("NextContinuationToken")}
            if page["IsTruncated"] and (coming == at or None in coming.values()):
                msg = "the next page is the page that was read"
                raise ValueError(msg)
            yield page
            if not page["IsTruncated"]:
                return
            at = coming


def is_aws(endpoint: str) -> bool:
    """Tell whether a URL is of AWS itself."""
    return (urlsplit(endpoint).hostname or "").endswith(_AWS)


def _parts(uri: str) -> tuple[str, str]:
    """Give bucket and key of a canonical URI."""
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    return bucket, key


def _is_probe(key: str) -> bool:
    return key.endswith(".probe") and bool(_PROBE.fullmatch(key.rpartition("/")[2]))


def _entry(bucket: str, one: Any) -> FileEntry:
    """Give a file of a page.

    :raises KeyError: The service did not tell its time or length.
    """
    modified_ms = (one["LastModified"] - _EPOCH) // timedelta(milliseconds=1)
    sum_of_content = _MD5.fullmatch(one.get("ETag", ""))
    md5 = b64encode(bytes.fromhex(sum_of_content[1])).decode() if sum_of_content else None
    return FileEntry(modified_ms, f"{SCHEME}{bucket}/{one['Key']}", one["Size"], None, md5)


def _check_is_s3(answer: Any) -> None:
    """See that an answer is of the service and not of a proxy, which would not have this header.

    :raises ValueError: It is not.
    """
    if not answer.get("ETag"):
        msg = "the answer is not from S3: it has no ETag"
        raise ValueError(msg)
