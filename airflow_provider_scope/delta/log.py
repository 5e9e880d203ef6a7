"""A Delta table as ``deltalake`` reads it: in place on a disk, else from a copy of the end of its log.

So reading a table needs no credentials but those of its ``Storage``.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import ArrowException

from airflow_provider_scope.delta.commit import DamagedCommitError, parse, path_of
from airflow_provider_scope.delta.schema import of_delta
from airflow_provider_scope.exceptions import (
    ScopeProviderError,
    SourceNotFoundError,
    StorageError,
    TableUnreadableError,
)
from airflow_provider_scope.failures import is_refusal
from airflow_provider_scope.stores.local import SCHEME, local_path
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_scope.delta.commit import DeltaCommit
    from airflow_provider_scope.delta.schema import Struct
    from airflow_provider_scope.stores.protocol import Storage


LISTING_TRIES = 4
"""How often a log is listed if files of the listing no longer exist: Delta cleans it up while we read."""

COPY_LIMIT_BYTES = 4 * 1024**3
"""Most bytes of a log that are copied: it is untrusted input, and must not fill the worker's disk."""

THREADS = 4
"""How many files of a log are read at the same time, each as a whole."""

_WHOLE_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:parquet|[0-9a-fA-F-]{36}\.(?:parquet|json))")
_CHECKPOINT_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_SIDECAR = re.compile(r"[\w.-]+\.parquet")
_UNSUPPORTED = re.compile("Unsupported|catalog-managed")
_DECODED = re.compile(r"%[0-9A-Fa-f]{2}")
"""Text that deltalake decodes in a path: for ``a%20b`` it opens ``a b``, another table."""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table, and its log as files on this machine."""

    delta: DeltaTable
    folder: Path

    def commit(self, version: int) -> DeltaCommit | None:
        """Read what a commit says of itself and of the table; None if it is no longer in the log.

        The version is that of the file's name. deltalake's history counts only commits with a ``commitInfo``.
        """
        try:
            data = Path(path_of(str(self.folder), version)).read_bytes()
        except FileNotFoundError:
            return None
        return parse(version, data, only=("commitInfo", "metaData"))


@contextmanager
def open_table(
    location: str, storage: Storage, *, since: int | None = None, at: int | None = None
) -> Iterator[OpenTable | None]:
    """Open a table; None if there is none.

    :param location: Canonical URI of the table.
    :param storage: Where it is.
    :param since: The oldest version whose commit is needed; None: only the newest state is needed.
    :param at: The version to open; None is the newest one. If the log no longer tells it, there is no table.
    :raises TableUnreadableError: The log could not be read. That never means "no table".
    """
    if at is not None and not _listed(storage, location, at).tells(at):
        yield None
        return
    if is_in_place(location):
        yield _open(location, Path(local_path(location)), at)
        return
    with tempfile.TemporaryDirectory(prefix="airflow-provider-scope-log-") as folder:
        is_copied = _copy(storage, location, Path(folder), since, at)
        yield _open(location, Path(folder)) if is_copied else None


def read_table(
    location: str, storage: Storage, columns: Sequence[str], check: Callable[[OpenTable], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a small table, a part at a time; none if there is no table.

    :param check: Refuses a table of others, by an error of its own.
    :raises TableUnreadableError: It could not be read, or has other columns.
    """
    try:
        with open_table(location, storage) as table:
            if table is None:
                return
            if check:
                check(table)
            names = pa.table(table.delta.get_add_actions(flatten=True))["path"].to_pylist()
        for name in names:
            data = storage.read(f"{location}/{name}")
            if data is None:
                raise unreadable(location, f"the file {name} is missing")
            file = pq.ParquetFile(io.BytesIO(data))
            if not {*columns} <= {*file.schema_arrow.names}:
                raise unreadable(location, f"it has other columns: {', '.join(file.schema_arrow.names)}")
            yield from file.iter_batches(columns=columns)
    except (DeltaError, ArrowException, KeyError, ValueError, TypeError, OSError) as err:
        if isinstance(err, ScopeProviderError):
            raise
        raise unreadable(location, err) from err


@contextmanager
def open_source(table: str, storage: Storage) -> Iterator[OpenTable]:
    """Open a table that is the source of rows.

    :raises SourceNotFoundError: There is no table.
    """
    with open_table(table, storage) as opened:
        if opened is None:
            raise SourceNotFoundError(
                f"There is no Delta table at {table}.",
                kept="everything; nothing was read or written",
                do="bring it back, if it was moved or dropped; or correct source.table; or let the task "
                "that creates it run first",
            )
        yield opened


def is_in_place(location: str) -> bool:
    """Whether deltalake can open a table where it is, and not only a copy of its log."""
    return location.startswith(SCHEME) and not _DECODED.search(location)


def newest_version(location: str, storage: Storage) -> int:
    """Find a table's newest version; -1 if there is no table.

    :raises TableUnreadableError: The log could not be read.
    """
    if is_in_place(location):
        with open_table(location, storage) as table:
            return -1 if table is None else table.delta.version()
    return _listed(storage, location).newest


def read_commit(
    location: str, version: int, storage: Storage, at_most: int = CONTROL_FILE_LIMIT_BYTES
) -> DeltaCommit | None:
    """Read one commit of a table; None if the log does not have it.

    :raises StorageError: It could not be read, or is larger than ``at_most`` bytes.
    :raises DamagedCommitError: Its file is not whole.
    """
    data = storage.read(path_of(location, version), at_most)
    return None if data is None else parse(version, data)


def newest_commits(location: str, since: int, storage: Storage) -> tuple[bytes, list[DeltaCommit]] | None:
    """Read the checksum file of the newest commit, and the commits after ``since``, at least the newest one.

    None if one of these files is missing.

    :raises TableUnreadableError: The log could not be read.
    """
    log = _listed(storage, location)
    first = min(since + 1, log.newest)
    if log.newest < max(since, 0) or log.missing_from(first) is not None:
        return None
    commits = []
    try:
        # The checksum first: most tables that other programs write have none.
        checksum = storage.read(f"{location}/_delta_log/{log.newest:020}.crc", COPY_LIMIT_BYTES)
        if checksum is None:
            return None
        for version in range(first, log.newest + 1):
            commit = read_commit(location, version, storage, COPY_LIMIT_BYTES)
            if commit is None:
                return None
            commits.append(commit)
    except (StorageError, DamagedCommitError) as err:
        raise unreadable(location, err) from err
    return checksum, commits


def unreadable(location: str, err: object, do: str = "") -> TableUnreadableError:
    """Make the error for a log that could not be read.

    :param err: The cause.
    :param do: What helps; by default what follows from the cause.
    """
    # deltalake adds the stack of its own code, in Rust.
    reason = err.what if isinstance(err, StorageError) else str(err).partition("\n   0: ")[0]
    if isinstance(err, StorageError | DamagedCommitError):
        do = do or err.do
    elif _UNSUPPORTED.search(reason):
        do = do or (
            "the table was written by a newer writer: install a deltalake that knows the feature, or drop it "
            "(ALTER TABLE ... DROP FEATURE); a table that a catalog manages cannot be used by its path"
        )
    elif isinstance(err, PermissionError) or is_refusal(reason):
        do = do or "give the worker read access to the table's _delta_log; the next try looks again"
    return TableUnreadableError(
        f"The log of the table {location} could not be read: {reason.removesuffix('.')}.",
        kept="the table, the checkpoint and all files; nothing was written",
        do=do
        or "check the files in the table's _delta_log, and restore from a copy what is damaged; the "
        "next try looks again",
    )


def _open(location: str, path: Path, at: int | None = None) -> OpenTable | None:
    for _ in range(LISTING_TRIES):
        try:
            table = OpenTable(DeltaTable(str(path), version=at), path)
        except TableNotFoundError as err:
            # deltalake says "not found" for "no access" as well, so we list the log ourselves.
            if not _has_log(_names(location, path)):
                return None
            not_found = err  # or the table was created between the two steps: try again
        except (DeltaError, OSError, ValueError) as err:
            raise _diagnosis(location, path, err) from err
        else:
            _check_newest(location, table)
            if Path(path_of(str(path), table.delta.version() + 1)).is_symlink():
                _names(location, path)  # deltalake ignores a link that leads nowhere; this raises
            return table
    raise unreadable(location, not_found) from not_found


def _check_newest(location: str, table: OpenTable) -> None:
    """Refuse a newest commit that is damaged: deltalake takes an empty one for a version without changes."""
    try:
        table.commit(table.delta.version())
    except (OSError, DamagedCommitError) as err:
        raise unreadable(location, err) from err


def _names(location: str, path: Path) -> list[str]:
    folder = f"{SCHEME}{path}"
    try:
        return open_storage(folder).names(f"{folder}/_delta_log")
    except StorageError as err:
        raise unreadable(location, err) from err


def _diagnosis(location: str, path: Path, err: Exception) -> TableUnreadableError:
    """Make the error for a log that deltalake cannot read, and name the file that is the cause."""
    if _UNSUPPORTED.search(str(err)):
        return unreadable(location, err)
    names = _names(location, path)
    log = _log_of(names)
    missing = log.missing_from(log.checkpoint + 1)
    if missing is not None:
        return TableUnreadableError(
            f"The log of the table {location} lacks version {missing}, and there is no checkpoint after "
            "it: it is not known what the table holds.",
            kept="the table, the checkpoint and all files; nothing was written",
            do=f"restore the file {missing:020}.json",
        )
    for version in log.tail(None):
        try:
            parse(version, Path(path_of(str(path), version)).read_bytes())
        except (DamagedCommitError, OSError) as cause:
            return unreadable(location, cause)
    checksums = [int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.crc", name)]
    last = max(checksums, default=-1)
    if last > log.newest:
        return unreadable(
            location,
            f"it has {last:020}.crc, a checksum of version {last}, and its newest commit is version "
            f"{log.newest}: commits were deleted, or not all were copied",
            f"restore the commits from {log.newest + 1:020}.json on from a copy. If the table is to end at "
            f"version {log.newest}, delete the files .crc of later versions",
        )
    return unreadable(location, err)


def _has_log(names: Iterable[str]) -> bool:
    return any(name.endswith((".json", ".parquet")) for name in names)


@dataclass(frozen=True, slots=True)
class _Log:
    """The files of a log that its newest state needs."""

    commits: tuple[int, ...]
    """Versions, ascending."""
    checkpoint: int
    """The version of the newest complete checkpoint; -1 if there is none."""
    parts: tuple[str, ...]
    """The names of that checkpoint's files; if the version has several checkpoints, those of one."""
    is_log: bool
    """Whether the folder holds any file of a log, so that there is a table."""

    @property
    def newest(self) -> int:
        """The newest version; -1 if there is no table."""
        return max(self.checkpoint, self.commits[-1] if self.commits else -1)

    def tail(self, since: int | None) -> list[int]:
        """List the versions of the needed commits: from the checkpoint, or from an earlier ``since``, on."""
        first = self.checkpoint if since is None else min(self.checkpoint, since)
        return [version for version in self.commits if version >= first]

    def missing_from(self, first: int) -> int | None:
        """Find the first missing commit from ``first`` to the newest version; None if there is none."""
        existing = {*self.commits}
        return next((version for version in range(first, self.newest + 1) if version not in existing), None)

    def tells(self, version: int) -> bool:
        """Check whether these files tell the state of a version, which is to be the newest one."""
        return self.newest == version and self.missing_from(self.checkpoint + 1) is None


def _log_of(names: Sequence[str]) -> _Log:
    # Nearly all names are those of commits, and there may be 10,000.
    commits = sorted(int(name[:20]) for name in names if name[20:] == ".json" and name[:20].isdecimal())
    whole: dict[int, tuple[str, ...]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in (name for name in names if ".checkpoint." in name):
        if match := _WHOLE_CHECKPOINT.fullmatch(name):
            whole[int(match[1])] = (name,)
        elif match := _CHECKPOINT_PART.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3])), []).append(name)
    for (version, count), part_names in parts.items():
        if len(part_names) == count:
            whole.setdefault(version, tuple(part_names))
    newest = max(whole, default=-1)
    return _Log(tuple(commits), newest, whole.get(newest, ()), bool(commits) or _has_log(names))


def _listed(storage: Storage, location: str, at: int | None = None) -> _Log:
    """List a log, again as long as a commit is missing: a listing in pages is not of one moment.

    :param at: The last version that counts; None: all do.
    :raises TableUnreadableError: It could not be listed, or it has files and neither commit nor checkpoint.
    """
    for _ in range(LISTING_TRIES):
        try:
            names = storage.names(f"{location}/_delta_log")
            log = _log_of([name for name in names if at is None or name[:20] <= f"{at:020}"])
        except StorageError as err:
            raise unreadable(location, err) from err
        if log.missing_from(log.checkpoint + 1) is None:
            break
    if at is None and log.is_log and log.newest < 0:
        raise unreadable(location, "it holds neither a commit nor a checkpoint")
    return log


def _copy(storage: Storage, location: str, folder: Path, since: int | None, at: int | None) -> bool:
    """Copy the needed files of a log, all of them from one listing.

    :return: False if there is no table.
    :raises TableUnreadableError: It could not be read, or is too large.
    """
    target = folder / "_delta_log"
    for _ in range(LISTING_TRIES):
        log = _listed(storage, location, at)
        if log.newest < 0:
            return False
        missing_file = _copy_files(storage, location, target, log, since)
        if not missing_file:
            return True
    raise unreadable(location, f"{missing_file} was deleted while it was read, {LISTING_TRIES} times")


def _copy_files(storage: Storage, location: str, target: Path, log: _Log, since: int | None) -> str:
    """Copy the needed files of a log, and the sidecars that the files of its checkpoint name.

    :return: The name of a file that no longer exists; empty if all were copied.
    """
    copied_bytes, counting = 0, Lock()

    def copy(name: str) -> str:
        nonlocal copied_bytes
        data = storage.read(f"{location}/_delta_log/{name}", COPY_LIMIT_BYTES)
        if data is None:
            return name
        with counting:
            copied_bytes += len(data)
        if copied_bytes > COPY_LIMIT_BYTES:
            raise StorageError(f"it holds more than {COPY_LIMIT_BYTES:,} bytes from its newest checkpoint on")
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return ""

    def copy_all(names: Iterable[str]) -> str:
        with ThreadPoolExecutor(THREADS, thread_name_prefix="delta-log") as pool:
            try:
                return next(filter(None, pool.map(copy, names)), "")
            except StorageError as err:
                raise unreadable(location, err) from err
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    missing_file = copy_all([*log.parts, *(f"{version:020}.json" for version in log.tail(since))])
    return missing_file or copy_all(_sidecars_of(location, target, log.parts))


def _sidecars_of(location: str, folder: Path, checkpoint: Iterable[str]) -> list[str]:
    """Name the files that hold the rest of a checkpoint that was copied."""
    try:
        names = sorted({name for part in checkpoint for name in _sidecars(folder / part)})
    except (ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise unreadable(location, f"a checkpoint could not be understood: {err!r}") from err
    return [f"_sidecars/{name}" for name in names]


def _sidecars(checkpoint: Path) -> Iterator[str]:
    """Read the names of the sidecars.

    :raises ValueError: A sidecar's name is not a plain file name: it would lead out of the folder.
    """
    actions: Iterable[dict[str, str] | None]
    if checkpoint.suffix == ".json":
        with checkpoint.open(encoding="utf-8") as lines:
            actions = [json.loads(line).get("sidecar") for line in lines if line.strip()]
    else:
        data = pq.ParquetFile(io.BytesIO(checkpoint.read_bytes()))
        if "sidecar" not in data.schema_arrow.names:
            return
        actions = data.read(columns=["sidecar"])["sidecar"].to_pylist()
    for action in actions:
        name = action and action["path"]
        if not name:
            continue
        if not _SIDECAR.fullmatch(name):
            msg = f"it names {name!r}"
            raise ValueError(msg)
        yield name


def table_columns(location: str, storage: Storage) -> Struct | None:
    """Read the columns of a table; None if there is no table.

    :param location: Canonical URI of the table.
    :param storage: Where the table is.
    :raises TableUnreadableError: The log could not be read. That never means "no table".
    """
    with open_table(location, storage) as table:
        if table is None:
            return None
        try:
            return of_delta(json.loads(table.delta.schema().to_json()))
        except (DeltaError, OSError, ValueError) as err:
            raise unreadable(location, err) from err
