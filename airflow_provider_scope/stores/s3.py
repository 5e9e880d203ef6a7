"""Files on S3, and on stores with its protocol, through botocore's client."""

from __future__ import annotations

import logging
import re
import secrets
import threading
from base64 import b64encode
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider_scope.exceptions import (
    InputError,
    ScopeProviderError,
    SourceError,
    SourceRefusedError,
    SourceUnreadableError,
    StorageError,
    mask,
)
from airflow_provider_scope.stores.calls import PASSING, REFUSED, Repeating, without_secrets
from airflow_provider_scope.stores.opening import bad, split, with_connection
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES
from airflow_provider_scope.values import FileEntry, no_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


CONFIG: dict[str, Any] = {
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    # Stores that only resemble S3 refuse the checksums that AWS takes; the signature covers the data.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}
"""Settings of every client that is given to ``S3Calls``."""

_PASSING_CODES = ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown")
# By their names: this module is there without botocore, too.
_NO_IDENTITY = ("NoCredentialsError", "PartialCredentialsError")


class S3Calls:
    """Makes calls of a client.

    :param repeating: How to try again after transport errors, 409 that pass, 429 and 5xx.
    """

    def __init__(self, repeating: Repeating | None = None) -> None:
        self._repeating = repeating or Repeating()
        # At DEBUG it writes the headers of each request, and with them the token of a session.
        logging.getLogger("botocore").setLevel(logging.INFO)

    def repeated(self, call: Callable[..., Any], **arguments: Any) -> Any:
        """Make a call that may be carried out twice, until it succeeds or is refused."""
        return self._repeating.repeated(
            partial(call, **arguments),
            may_pass=may_pass,
            retry_after_of=lambda err: _headers(err).get("retry-after"),
        )


def status_of(err: BaseException) -> int | None:
    """Give the HTTP status of an error; None if there was no answer."""
    status = _metadata(err).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def code_of(err: BaseException) -> str:
    """Give the service's code of an error, such as ``NoSuchKey``; a number if it told none."""
    return str(_error(err).get("Code", ""))


def may_pass(err: BaseException) -> bool:
    """Tell whether the same call may succeed later: no answer, or one that asks to come back."""
    if isinstance(err, ScopeProviderError) or type(err).__name__ in _NO_IDENTITY:
        return False
    return status_of(err) in (None, *PASSING) or code_of(err) in _PASSING_CODES


def is_missing(err: BaseException) -> bool:
    """Tell whether the service says that there is no such object; no other 404 says so, nor a bucket's."""
    return status_of(err) == 404 and code_of(err) == "NoSuchKey"  # noqa: PLR2004


def is_existing(err: BaseException) -> bool:
    """Tell whether a creation was refused because the name is taken; a conflict (409) does not say so."""
    return status_of(err) == 412 and code_of(err) == "PreconditionFailed"  # noqa: PLR2004


def is_not_implemented(err: BaseException) -> bool:
    """Tell whether the service does not know what was asked for, such as a header."""
    return status_of(err) == 501 or code_of(err) == "NotImplemented"  # noqa: PLR2004


def is_refused(err: BaseException) -> bool:
    """Tell whether the identity is not known, or not allowed to do this."""
    return status_of(err) in REFUSED or type(err).__name__ in _NO_IDENTITY


def described(err: BaseException) -> str:
    """Give status, code, text and request id of an error, for people."""
    first = next(iter(str(err).strip().splitlines()), "")
    if status_of(err):
        first = str(_error(err).get("Message", ""))
    status = status_of(err)
    parts = (status, code_of(err) if code_of(err) != str(status) else "")
    text = " ".join(str(part) for part in parts if part) or type(err).__name__
    text = mask(f"{text}: {first}" if first else text)[:1000].removesuffix(".")
    request_id = _metadata(err).get("RequestId")
    return f"{text} (request id {request_id})" if request_id else text


def _metadata(err: BaseException) -> Mapping[str, Any]:
    return _response(err).get("ResponseMetadata") or {}


def _error(err: BaseException) -> Mapping[str, Any]:
    return _response(err).get("Error") or {}


def _response(err: BaseException) -> Mapping[str, Any]:
    """Give the answer that botocore's ``ClientError`` is about."""
    response = getattr(err, "response", None)
    return response if isinstance(response, dict) else {}


def _headers(err: BaseException) -> Mapping[str, str]:
    return _metadata(err).get("HTTPHeaders") or {}


@contextmanager
def failing(verb: str, path: str) -> Iterator[None]:
    """Turn the client's errors into the storage's.

    :raises StorageError: There was one.
    """
    try:
        yield
    except (StorageError, InputError):
        raise
    except Exception as err:  # noqa: BLE001 - whatever the client raises, it is not absence
        raise failed(verb, path, err) from without_secrets(err)


def failed(verb: str, path: str, err: BaseException | str) -> StorageError:
    """Give the error for a control file."""
    why = err if isinstance(err, str) else described(err)
    return StorageError(
        f"Could not {verb} {path}: {why}.",
        kept="everything that was written before",
        do="check the bucket and the connection's rights (s3:ListBucket, s3:GetObject, s3:PutObject, "
        "s3:DeleteObject); the next try reads the log and goes on",
    )


def unreadable(root: str, err: BaseException | str) -> SourceError:
    """Give the error for a source folder."""
    why = err if isinstance(err, str) else described(err)
    what = f"The source folder {root} could not be listed: {why}."
    kept = "the table and the checkpoint; nothing was written"
    if isinstance(err, BaseException) and is_refused(err):
        return SourceRefusedError(
            what, kept=kept, do="give the connection's identity s3:ListBucket, or correct its credentials"
        )
    return SourceUnreadableError(
        what,
        kept=kept,
        do="check the bucket, the region and the endpoint of the connection; a part of the source is never "
        "skipped. The next try lists again",
    )


def takes_no_notice(endpoint: str, bucket: str) -> InputError:
    """Give the error for a store that creates a file twice."""
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
    """Give the canonical URI: ``s3://<bucket>/…``, also for ``s3a://``, which is Hadoop's name of the same.

    :raises InputError: It has a connection in it, or names no bucket.
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
