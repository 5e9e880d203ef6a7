"""Sources on any fsspec filesystem: they can be listed, but cannot hold a table or a checkpoint."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_scope.exceptions import mask
from airflow_provider_scope.stores.calls import not_allowed, unreadable, without_secrets
from airflow_provider_scope.stores.protocol import canonical_uri, split, with_connection
from airflow_provider_scope.values import FileEntry, milliseconds, no_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_scope.exceptions import SourceError, SourceUnreadableError

_MODIFIED = (
    "mtime",
    "LastModified",
    "last_modified",
    "modified",
    "updated",
    "modifiedTime",
    "modificationTime",
)
"""Names under which fsspec's filesystems give the time of a file's last change."""

_LARGEST_SECONDS = 100_000_000_000
"""A larger number, 5138 AD in seconds, is in milliseconds."""


def canonical(location: str) -> str:
    """Write it as ``<scheme>://<bucket>/…``.

    :raises InputError: The location has a connection in it.
    """
    scheme, authority, path = split(location)
    if "@" in authority:
        conn_id, bucket = authority.rsplit("@", 1)
        raise with_connection(location, conn_id, f"{scheme}://{bucket}{path}")
    return f"{scheme}://{authority}{path}"


class ObjectSource:
    """The files of one fsspec filesystem. All operations on control files raise an error that says why.

    :param fs: A filesystem; its cache is emptied before each listing.
    """

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below ``root``. The time is 0 where the store does not give it.

        A store with a flat listing is listed in one call, others folder by folder. fsspec's own ``find``
        is not used for those: it silently leaves out the folders that it could not list.
        """
        top = self._fs._strip_protocol(root)  # noqa: SLF001 - the way every fsspec caller takes
        try:
            self._fs.invalidate_cache()
            entries = self._flat_listing(top) if _lists_flat(self._fs) else None
        except Exception as err:  # noqa: BLE001 - whatever a store raises, it is not absence
            raise self._error(root, err) from without_secrets(err)
        if entries is None:
            yield from self._folders(root, top)
            return
        if not entries:
            self._check_folder(root, top)
        for name, info in entries.items():
            if name == top:
                raise _unreadable(root, "it is a file, not a folder")
            if not name.endswith("/"):
                yield _entry(root, top, name, info)

    def _refuse(self, *arguments: Any, **_: Any) -> NoReturn:
        """Refuse an operation on a control file.

        :param arguments: The path, and arguments that are not used.
        :raises InputError: Always; it says why the store holds no control files.
        """
        canonical_uri(arguments[0])
        msg = f"{arguments[0]!r} is on a store with control files; open it as one"
        raise ValueError(msg)

    names = read = put_if_absent = replace = delete = _refuse

    def _flat_listing(self, top: str) -> dict[str, dict[str, Any]]:
        entries = self._fs.find(top, detail=True)
        return {name: info for name, info in entries.items() if info.get("type") != "directory"}

    def _folders(self, root: str, top: str) -> Iterator[FileEntry]:
        self._check_folder(root, top)
        pending = [top]
        while pending:
            folder = pending.pop()
            try:
                listing = self._fs.ls(folder, detail=True)
            except FileNotFoundError as err:
                self._check_folder(root, top, why_missing="it was deleted during the listing")
                if folder == top:
                    raise _unreadable(root, "its status and its listing contradict each other") from err
                continue
            except Exception as err:  # noqa: BLE001 - as above
                raise self._error(folder, err) from without_secrets(err)
            for info in listing:
                name = info["name"].rstrip("/")
                if info["type"] == "directory":
                    if name != folder:
                        pending.append(name)
                else:
                    yield _entry(root, top, info["name"], info)

    def _check_folder(self, root: str, top: str, why_missing: str = "") -> None:
        """Check that the root is a folder.

        :param why_missing: The reason if the root does not exist; by default it never existed.
        """
        try:
            kind = self._fs.info(top).get("type")
        except FileNotFoundError as err:
            if why_missing:
                raise _unreadable(root, why_missing) from err
            raise no_root(root) from err
        except Exception as err:  # noqa: BLE001 - as above
            raise self._error(root, err) from without_secrets(err)
        if kind != "directory":
            raise _unreadable(root, "it is a file, not a folder")

    def _error(self, path: str, err: Exception) -> SourceError:
        text = mask(f"{type(err).__name__}: {err}")[:1000]
        if isinstance(err, PermissionError):
            return not_allowed(path, text, "the right to list it")
        return _unreadable(path, text)


def _lists_flat(fs: Any) -> bool:
    """Whether a filesystem has its own way to list everything below a folder in one call."""
    find = getattr(type(fs), "_find", None) or type(fs).find
    return find.__module__ not in ("fsspec.spec", "fsspec.asyn")


def _entry(root: str, top: str, name: str, info: Mapping[str, Any]) -> FileEntry:
    below = f"{top.rstrip('/')}/"
    if not name.startswith(below):
        raise _unreadable(root, f"the listing has {name!r}, which is not below it")
    size = info.get("size")
    if not isinstance(size, int):
        raise _unreadable(root, f"the store does not tell the length of {name!r}")
    return FileEntry(_modified_ms(info), f"{root.rstrip('/')}/{name[len(below) :]}", size)


def _modified_ms(info: Mapping[str, Any]) -> int:
    """Read a file's modification time in milliseconds since the epoch; 0 if the store does not give it."""
    value = next((info[key] for key in _MODIFIED if info.get(key) is not None), None)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return 0
    if isinstance(value, datetime):
        return milliseconds(value if value.tzinfo else value.replace(tzinfo=UTC))
    if isinstance(value, int | float):
        return round(value if value > _LARGEST_SECONDS else value * 1000)
    return 0


def _unreadable(path: str, why: str) -> SourceUnreadableError:
    return unreadable(path, why, "check the store and the connection")
