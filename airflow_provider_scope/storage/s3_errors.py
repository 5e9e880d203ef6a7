"""What a failed call of S3 means for a run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    InputError,
    SourceError,
    SourceRefusedError,
    SourceUnreadableError,
    StorageError,
)
from airflow_provider_scope.storage.azure_calls import without_secrets
from airflow_provider_scope.storage.s3_calls import described, is_refused

if TYPE_CHECKING:
    from collections.abc import Iterator


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
