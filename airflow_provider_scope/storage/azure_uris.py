"""How a location on Azure Storage is written."""

from __future__ import annotations

import re

from airflow_provider_scope.storage.opening import bad, split, with_connection

_CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}|\$(?:root|web|logs)")
_HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.dfs\.[a-z0-9.-]+")
_URL = re.compile(r"(?i)https?://([\w-]+)\.(?:blob|dfs)\.([\w.-]+)/([^/]+)(/.*)?")
_BLOB_HOST = re.compile(r"(?i)([\w.-]+)\.blob\.([\w.-]+)")


def canonical(location: str) -> str:
    """Give the canonical URI: ``abfss://<container>@<account>.dfs…``.

    :raises InputError: It is written in another way, or is not valid.
    """
    scheme, authority, path = split(location)
    if scheme in _ADVICE:
        raise bad(location, f"is on {scheme}://, which is not supported", _ADVICE[scheme](location))
    container, at, host = authority.partition("@")
    host = host.lower()
    if not at:
        raise bad(location, "names no account", f"write {_uri(container, path)}")
    blob = _BLOB_HOST.fullmatch(host)
    if blob:
        raise bad(
            location, "names the Blob endpoint", f"write abfss://{container}@{blob[1]}.dfs.{blob[2]}{path}"
        )
    if "." not in host:
        raise with_connection(location, container, _uri(host, path))
    if not _CONTAINER.fullmatch(container):
        raise bad(
            location,
            f"names no container: {container!r} is not a valid name of one",
            "write its name, of 3 to 63 lowercase letters, digits and single hyphens",
        )
    if not _HOST.fullmatch(host) or "\\" in path:
        raise bad(location, "is not valid", f"write {_uri('<container>', '/…')}, without a backslash")
    return f"abfss://{container}@{host}{path}"


def _uri(container: str, path: str) -> str:
    return f"abfss://{container}@<account>.dfs.core.windows.net{path}"


def _blob_advice(location: str) -> str:
    """Give what to write for ``wasbs://<container>@<account>.blob…``."""
    _, authority, path = split(location)
    container, _, host = authority.partition("@")
    blob = _BLOB_HOST.fullmatch(host)
    return f"write abfss://{container}@{blob[1]}.dfs.{blob[2]}{path}" if blob else _az_advice(location)


def _az_advice(location: str) -> str:
    _, authority, path = split(location)
    conn_id, at, container = authority.rpartition("@")
    advice = f"write {_uri(container, path)}"
    return f"{advice}, and storage_conn_id={conn_id!r}" if at else advice


def _url_advice(location: str) -> str:
    match = _URL.fullmatch(location)
    if match is None:
        return "name a folder that can be listed with modification times"
    return f"write abfss://{match[3]}@{match[1]}.dfs.{match[2]}{(match[4] or '').rstrip('/')}"


_ADVICE = {
    "wasb": _blob_advice,
    "wasbs": _blob_advice,
    "az": _az_advice,
    "http": _url_advice,
    "https": _url_advice,
}
