"""A store as a contributor would add one: ``toy:///<folder>`` is a folder of this machine."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import SourceUnreadableError, StorageError
from airflow_provider_scope.stores.kinds import KINDS, StoreKind
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES, Store, bad, existing, split
from airflow_provider_scope.values import FileEntry, no_root

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW = StoreKind(
    name="a toy",
    schemes=("toy",),
    aliases=("toys",),
    canonical=f"{__name__}:canonical",
    open=f"{__name__}:open_store",
    needs_connection=False,
    spark_conf={"spark.hadoop.fs.toy.impl": "org.example.ToyFileSystem"},
    spark_packages=("hadoop-toy",),
)


@contextmanager
def registered() -> Iterator[None]:
    """Have the row among the others meanwhile; a contributor writes it there."""
    KINDS.append(ROW)
    try:
        yield
    finally:
        KINDS.remove(ROW)


def canonical(location: str) -> str:
    _, authority, path = split(location)
    if authority:
        raise bad(location, "names a host", f"write toy://{path}")
    return f"toy://{path}"


def open_store(uri: str, conn_id: str | None, connection: object) -> Store:
    return Store(storage=ToyStorage())


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("toy://"))


class ToyStorage:
    """Folders and files; a file is written aside, and linked to its name."""

    def walk(self, root: str) -> Iterator[FileEntry]:
        try:
            for path in _path(root).iterdir():
                if path.is_dir():
                    yield from self.walk(f"toy://{path}")
                else:
                    status = path.stat()
                    yield FileEntry(status.st_mtime_ns // 1_000_000, f"toy://{path}", status.st_size)
        except FileNotFoundError as err:
            raise no_root(root) from err
        except OSError as err:
            raise SourceUnreadableError(f"The source folder {root} could not be listed: {err}.") from err

    def names(self, folder: str) -> list[str]:
        with _failing("list", folder):
            try:
                return sorted(p.name for p in _path(folder).iterdir() if p.is_file() and p.suffix != ".aside")
            except FileNotFoundError:
                return []

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        with _failing("read", path):
            try:
                data = _path(path).read_bytes()
            except FileNotFoundError:
                return None
            if len(data) > at_most:
                raise StorageError(f"Could not read {path}: it is larger than {at_most:,} bytes.")
            return data

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        with _failing("create", path), _aside(path, data) as written:
            try:
                os.link(written, _path(path))
            except FileExistsError:
                return existing(self, path)
            return data

    def replace(self, path: str, data: bytes) -> None:
        with _failing("replace", path), _aside(path, data) as written:
            written.replace(_path(path))

    def delete(self, path: str) -> None:
        with _failing("delete", path):
            _path(path).unlink(missing_ok=True)


@contextmanager
def _aside(path: str, data: bytes) -> Iterator[Path]:
    """Write a file whose name no listing gives."""
    folder = _path(path).parent
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{uuid.uuid4().hex}.aside"
    written.write_bytes(data)
    try:
        yield written
    finally:
        written.unlink(missing_ok=True)


@contextmanager
def _failing(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise StorageError(
            f"Could not {verb} {path}: {err}.", kept="everything before", do="look at the toy"
        ) from err
