"""From a location to its canonical URI, and to its storage where that needs no connection."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from airflow_provider_scope.core.files import HDFS
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.storage.local import SCHEME, LocalStorage

if TYPE_CHECKING:
    from airflow_provider_scope.storage.protocol import Storage

GEN1 = "adl://"
AZURE = "abfss://"

_CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}|\$(?:root|web|logs)")
_AZURE_HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.dfs\.[a-z0-9.-]+")
_AZURE_URL = re.compile(r"(?i)https?://([\w-]+)\.(?:blob|dfs)\.([\w.-]+)/([^/]+)(/.*)?")
_BLOB_HOST = re.compile(r"(?i)([\w.-]+)\.blob\.([\w.-]+)")
_HDFS_HOST = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\]):[0-9]{1,5}")

_NO_CHECKPOINT = {
    "memory": "it ends with its process",
    "s3": "s3fs asks S3 to refuse an existing name on AWS alone, and never for an empty file",
    "s3a": "s3fs asks S3 to refuse an existing name on AWS alone, and never for an empty file",
    "gs": "gcsfs calls its create-if-absent experimental",
    "gcs": "gcsfs calls its create-if-absent experimental",
}


def canonical_root(location: str) -> str:
    """Give the canonical URI of a folder that is listed; every fsspec store is possible here.

    :raises InputError: As ``canonical_uri``, but for the stores that hold no checkpoint.
    """
    scheme = _scheme(location)
    if scheme in ("", "file", "abfss", "abfs", "adl", "webhdfs", "swebhdfs") or scheme in _ADVICE:
        return canonical_uri(location)
    authority, path = _authority_and_path(location)
    if "@" in authority:
        conn_id, bucket = authority.rsplit("@", 1)
        raise _airflow_path(location, conn_id, f"{scheme}://{bucket}{path}")
    return f"{scheme}://{authority}{path}"


def canonical_uri(location: str) -> str:
    """Give the canonical, unencoded URI of a table or checkpoint, without a slash at the end.

    :raises InputError: The location is empty or relative, or on a store that is not supported or cannot
        create a file only if it is absent.
    """
    scheme = _scheme(location)
    if scheme in ("", "file"):
        return _local(location)
    authority, path = _authority_and_path(location)
    if scheme in ("abfss", "abfs"):
        return _azure(location, authority, path)
    if scheme == "adl":
        if not authority:
            raise _bad(location, "names no account", "write adl://<account>.azuredatalakestore.net/…")
        return GEN1 + authority.lower() + path
    if scheme in ("webhdfs", "swebhdfs"):
        return _hdfs(location, scheme, authority, path)
    if scheme in _ADVICE:
        raise _bad(location, f"is on {scheme}://, which is not supported", _ADVICE[scheme](location))
    reason = _NO_CHECKPOINT.get(scheme, "nothing shows that it refuses to create a file twice")
    raise _bad(
        location,
        f"is on {scheme}://, which holds sources, but no table and no checkpoint: {reason}. Two runs could "
        "both believe that they logged a batch",
        f"name a location on {AZURE}, {GEN1}, {' or '.join(HDFS)} or on a disk",
    )


def open_storage(uri: str) -> Storage:
    """Give the storage of a canonical URI that needs no connection.

    :raises InputError: It needs one.
    """
    if uri.startswith(SCHEME):
        return LocalStorage()
    raise _bad(uri, "cannot be opened without a connection", "name it in `storage_conn_id`")


def _local(location: str) -> str:
    text = location
    if text.startswith("file:") and not text.startswith("file://"):
        text = text[len("file:") :]
    path = text.removeprefix(SCHEME)
    if not path.startswith("/"):
        raise InputError(
            f"The location {location!r} is relative; the worker's folder is not yours.",
            kept="everything; nothing was read or written",
            do=f"write an absolute path, such as {os.path.abspath(path)!r}",  # noqa: PTH100 - text only
        )
    return SCHEME + os.path.normpath("/" + path.lstrip("/"))


def _azure(location: str, authority: str, path: str) -> str:
    container, at, host = authority.partition("@")
    host = host.lower()
    if not at:
        raise _bad(location, "names no account", f"write {_azure_uri(container, path)}")
    blob = _BLOB_HOST.fullmatch(host)
    if blob:
        raise _bad(
            location, "names the Blob endpoint", f"write {AZURE}{container}@{blob[1]}.dfs.{blob[2]}{path}"
        )
    if "." not in host:
        raise _airflow_path(location, container, _azure_uri(host, path))
    if not _CONTAINER.fullmatch(container):
        raise _bad(
            location,
            f"names no container: {container!r} is no name of one",
            "write its name, of 3 to 63 small letters, digits and single hyphens",
        )
    if not _AZURE_HOST.fullmatch(host) or "\\" in path:
        raise _bad(location, "is not valid", f"write {_azure_uri('<container>', '/…')}, without a backslash")
    return f"{AZURE}{container}@{host}{path}"


def _hdfs(location: str, scheme: str, authority: str, path: str) -> str:
    authority = authority.lower()
    if "@" in authority:
        user, host = authority.rsplit("@", 1)
        raise _bad(
            location, "names a user", f"write {scheme}://{host}{path}; {user} belongs in the connection"
        )
    if not _HDFS_HOST.fullmatch(authority):
        port = 9870 if scheme == "webhdfs" else 9871
        raise _bad(location, "names no port", f"write {scheme}://{authority or '<namenode>'}:{port}{path}")
    return f"{scheme}://{authority}{path}"


def _scheme(location: str) -> str:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", location)
    if match:
        return match[1].lower()
    return "file" if location.startswith("file:") else ""


def _authority_and_path(location: str) -> tuple[str, str]:
    """Split what follows the scheme; the path has no empty parts, and no slash at the end."""
    authority, _, path = location.partition("://")[2].partition("/")
    return authority, os.path.normpath("/" + path.lstrip("/")).rstrip("/")


def _azure_uri(container: str, path: str) -> str:
    return f"{AZURE}{container}@<account>.dfs.core.windows.net{path}"


def _blob_advice(location: str) -> str:
    """Give what to write for ``wasbs://<container>@<account>.blob…``."""
    authority, path = _authority_and_path(location)
    container, _, host = authority.partition("@")
    blob = _BLOB_HOST.fullmatch(host)
    return f"write {AZURE}{container}@{blob[1]}.dfs.{blob[2]}{path}" if blob else _az_advice(location)


def _az_advice(location: str) -> str:
    authority, path = _authority_and_path(location)
    conn_id, at, container = authority.rpartition("@")
    advice = f"write {_azure_uri(container, path)}"
    return f"{advice}, and storage_conn_id={conn_id!r}" if at else advice


def _url_advice(location: str) -> str:
    match = _AZURE_URL.fullmatch(location)
    if match is None:
        return "name a folder that can be listed with modification times"
    return f"write {AZURE}{match[3]}@{match[1]}.dfs.{match[2]}{(match[4] or '').rstrip('/')}"


def _hdfs_advice(location: str) -> str:
    authority, path = _authority_and_path(location)
    host = authority.partition(":")[0] or "<namenode>"
    return f"write the namenode's HTTP address: webhdfs://{host}:9870{path}"


_ADVICE = {
    "wasb": _blob_advice,
    "wasbs": _blob_advice,
    "az": _az_advice,
    "http": _url_advice,
    "https": _url_advice,
    "hdfs": _hdfs_advice,
}


def _airflow_path(location: str, conn_id: str, uri: str) -> InputError:
    return _bad(
        location,
        "has a connection in it, as Airflow's ObjectStoragePath writes it; Spark would read it as a part of "
        "the address",
        f"write {uri}, and storage_conn_id={conn_id!r}",
    )


def _bad(location: str, why: str, do: str) -> InputError:
    return InputError(
        f"The location {location!r} {why}.",
        kept="everything; nothing was read or written",
        do=do,
    )
