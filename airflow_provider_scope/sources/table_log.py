"""The log of a table whose feed is loaded, commit by commit."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from airflow_provider_scope.delta.commit import explaining_damage, path_of
from airflow_provider_scope.delta.log import open_table, read_commit
from airflow_provider_scope.exceptions import ChangeFeedError, SourceNotFoundError
from airflow_provider_scope.sources.feed import state as feed_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.delta.log import OpenTable
    from airflow_provider_scope.sources.feed.state import Metadata, SourceCommit
    from airflow_provider_scope.stores.protocol import Storage

_COMMIT = re.compile(r"\d{20}\.json")


@contextmanager
def open_source(table: str, storage: Storage | None) -> Iterator[OpenTable]:
    """Open a table that is to be read.

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


@dataclass
class SourceLog:
    """The log as a run sees it: the table is opened once, and newer versions than then are ignored."""

    table: str
    """Canonical URI of the table."""
    storage: Storage
    newest: int
    """The newest version."""
    metadata: Metadata
    """The table's, at that version."""
    commits: dict[int, SourceCommit | None] = field(default_factory=dict, init=False)
    """Those that were read: a commit never changes."""

    @classmethod
    def of(cls, table: str, storage: Storage) -> SourceLog:
        """Read the newest version of a table and its metadata.

        :raises SourceNotFoundError: There is no table.
        """
        with open_source(table, storage) as opened:
            metadata = opened.delta.metadata()
            parsed = feed_state.Metadata.of(
                {
                    "id": metadata.id,
                    "configuration": metadata.configuration,
                    "schemaString": opened.delta.schema().to_json(),
                }
            )
            return cls(table, storage, opened.delta.version(), parsed)

    def cleaned(self, oldest: int, argument: str) -> ChangeFeedError:
        """Give the error for versions that are older than the log.

        :param oldest: The oldest one that it has without a gap.
        :param argument: The field of the source that asks for them; empty if none does.
        """
        # Delta cleans up the oldest versions: one that is missing after others was deleted by somebody else.
        names = self.storage.names(f"{self.table}/_delta_log")
        if any(_COMMIT.fullmatch(name) and int(name[:20]) < oldest - 1 for name in names):
            return feed_state.missing(self.table, oldest - 1)
        named = f"source.{argument} is earlier" if argument else "its feed begins earlier"
        return ChangeFeedError(
            f"The log of {self.table} begins with version {oldest}, and {named}: the older versions were "
            "cleaned up (delta.logRetentionDuration).",
            kept=feed_state.KEPT,
            do=f"set full_load=True, which loads the rows as they are; or start_version={oldest} for the "
            "changes from there on",
        )

    def history(self) -> list[SourceCommit]:
        """Give all versions that the log still has, without a gap, oldest first."""
        commits: list[SourceCommit] = []
        for version in range(self.newest, -1, -1):
            commit = self.commit(version)
            if commit is None:
                break
            commits.append(commit)
        if not commits:
            raise feed_state.missing(self.table, self.newest)
        return commits[::-1]

    def metadata_before(self, first: int) -> Metadata | None:
        """Give the metadata before a version; None if the log no longer has it."""
        for version in range(first - 1, -1, -1):
            commit = self.commit(version)
            if commit is None:
                return None
            if commit.metadata:
                return commit.metadata
        return None

    def has_rows_before(self, first: SourceCommit) -> bool:
        """Tell whether the table had rows before a version; also true if the log no longer tells it."""
        if first.begins:
            return False
        with open_table(self.table, self.storage, since=first.version - 1) as opened:
            try:
                if opened is not None:
                    opened.delta.load_as_version(first.version - 1)
                return opened is None or bool(opened.delta.file_uris())
            except DeltaError:
                return True

    def commit(self, version: int) -> SourceCommit | None:
        """Give a commit; None if the log does not have it."""
        if version not in self.commits:
            with explaining_damage(path_of(self.table, version), feed_state.KEPT):
                commit = read_commit(self.table, version, self.storage)
                self.commits[version] = None if commit is None else feed_state.SourceCommit.of(commit)
        return self.commits[version]

    def needed(self, version: int) -> SourceCommit:
        """Give a commit of the range, or raise: Spark would silently skip one that is missing."""
        commit = self.commit(version)
        if commit is None:
            raise feed_state.missing(self.table, version)
        return commit
