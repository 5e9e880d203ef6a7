"""How a location on S3 is written."""

from __future__ import annotations

import re

from airflow_provider_scope.storage.opening import bad, split, with_connection

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
