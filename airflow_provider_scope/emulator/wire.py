"""Times and headers as the services write them."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from airflow_provider_scope.emulator.web import Response

_HARDENING = {
    "X-Content-Type-Options": "nosniff",
    "Strict-Transport-Security": "max-age=15724800; includeSubDomains",
}


def timestamp(seconds: float, offset_minutes: int) -> str:
    """Write a time with seven fractional digits and a local offset, as recorded jobs have it."""
    zone = timezone(timedelta(minutes=offset_minutes))
    moment = datetime.fromtimestamp(seconds, zone)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    sign = "-" if offset_minutes < 0 else "+"
    hours, minutes = divmod(abs(offset_minutes), 60)
    return f"{text}.{moment.microsecond:06d}0{sign}{hours:02d}:{minutes:02d}"


def duration(seconds: float) -> str:
    """Write a duration as ISO 8601."""
    return f"PT{max(seconds, 0.0):.7f}S"


def jobs_response(status: int, payload: Any = None, headers: dict[str, str] | None = None) -> Response:
    """Give an answer of the job service; without a payload the body is empty."""
    common = {
        "Cache-Control": "no-store, no-cache, max-age=0, private",
        "Expires": "-1",
        "x-ms-request-id": str(uuid.uuid4()),
        **_HARDENING,
        **(headers or {}),
    }
    if payload is None:
        return Response(status, b"", common)
    common["Content-Type"] = "application/json; charset=utf-8"
    return Response(status, json.dumps(payload, ensure_ascii=False).encode(), common)


def jobs_error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """Give an error of the job service."""
    return jobs_response(status, {"error": {"code": code, "message": message}}, headers)


def files_headers(*, extension: bool, status: str = "0x0") -> dict[str, str]:
    """Give the headers of the file service; ``extension`` is the /webhdfsext part of it."""
    headers = {
        "Cache-Control": "no-cache, no-cache, no-store, max-age=0",
        "Pragma": "no-cache",
        "Expires": "-1",
        "x-ms-request-id": str(uuid.uuid4()),
        "Status": status,
        **_HARDENING,
    }
    if not extension:
        headers["x-ms-webhdfs-version"] = "17.04.24.00"
    return headers


def files_error(
    status: int,
    exception: str,
    message: str,
    *,
    java_class: str | None = None,
    hresult: str = "0x83090000",
    extension: bool = False,
    retry_after: int | None = None,
) -> Response:
    """Give an error of the file service; it always has a length, since a client parses no other."""
    headers = files_headers(extension=extension, status=hresult)
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    headers["Content-Type"] = "application/json; charset=utf-8"
    moment = timestamp(datetime.now(UTC).timestamp(), -480)
    remote = {
        "exception": exception,
        "message": f"{message} [{headers['x-ms-request-id']}][{moment}]",
        "javaClassName": java_class or f"java.lang.{exception}",
    }
    return Response(status, json.dumps({"RemoteException": remote}).encode(), headers)
