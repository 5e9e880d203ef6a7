"""Short ways to the values that most tests are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry, TableIdentity
from airflow_provider_scope.protocol.report import RunReport
from airflow_provider_scope.sources.files.discovery import Rules
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, Ingest
from airflow_provider_scope.values import FileEntry, FileSlice, Position

if TYPE_CHECKING:
    from collections.abc import Iterable


class XComArgLike:
    """What Airflow's XComArgs have in common."""

    def iter_references(self) -> list[Any]:
        return []

    def resolve(self, context: Any) -> Any:
        return None


XCOM = XComArgLike()
TABLE = TableIdentity("11111111-1111-1111-1111-111111111111")


def a_file(
    path: str, modified_ms: int = 1_000, size_bytes: int = 10, created_ms: int | None = None
) -> FileEntry:
    """Return a file below ``file:///in``."""
    return FileEntry(modified_ms, f"file:///in/{path}", size_bytes, created_ms)


def below_in(files: Iterable[FileEntry]) -> list[str]:
    """Return the paths of files below ``file:///in``, as ``a_file`` takes them."""
    return [file.path.removeprefix("file:///in/") for file in files]


def rules(*patterns: str, **kwargs: Any) -> Rules:
    """Return the rules of a source; without patterns every name matches, and no file is too young."""
    return Rules(patterns=patterns or ("",), **{"young_after_ms": 10**12, **kwargs})


def an_entry(seq: int, *files: FileEntry, **kwargs: Any) -> OffsetEntry:
    """Return an append, before any refresh."""
    defaults: dict[str, Any] = {
        "mode": "append",
        "refresh_start": None,
        "overwrite_start": None,
        "highest": Position(files[-1].modified_ms, files[-1].path) if files else None,
    }
    asked = {**defaults, **kwargs}
    asked.setdefault("slice", FileSlice(files, asked.pop("highest")))
    return OffsetEntry(seq=seq, **asked)


def a_refresh(seq: int, *files: FileEntry, where: str | None = None) -> OffsetEntry:
    """Return the first entry of a full refresh."""
    return an_entry(
        seq,
        *files,
        mode="overwrite",
        where=where,
        refresh_start=seq,
        overwrite_start=None if where else seq,
    )


def a_commit(seq: int, **kwargs: Any) -> CommitRecord:
    """Return the record of a batch that became version ``seq + 1`` of the table."""
    defaults: dict[str, Any] = {
        "table": TABLE,
        "table_version": seq + 1,
        "files": 1,
        "size_bytes": 10,
        "committed_at_ms": 1_767_225_600_000,
    }
    return CommitRecord(seq=seq, **{**defaults, **kwargs})


def a_report(**kwargs: Any) -> RunReport:
    """Return the report of a run that found two files of three, and loaded nothing."""
    return RunReport(**{"roots": ("file:///in",), "listed": 3, "matched": 2, **kwargs})


def an_ingest(**arguments: Any) -> Ingest:
    """Return an operator's arguments as values; by default, files are appended to a table."""
    source = FileSource(roots="/in", format="parquet")
    return Ingest(**{"delta_location": "/delta/table", "source": source, **arguments})


def arguments(**changes: Any) -> dict[str, Any]:
    """Return an operator's arguments, as ``ingest_from`` takes them; by default, CSV files are appended."""
    defaults = {
        "delta_location": "/delta/t",
        "source": {"roots": ["/in"], "format": "csv"},
        "sql": SELECT_ALL,
        "write": "append",
        "full_refresh": False,
    }
    return {**dict.fromkeys(ARGUMENTS), **defaults, **changes}
