"""A source, a table and a checkpoint in memory, and a job service: the SCOPE engine as it is, on top."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from greenlet import getcurrent

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, InputError
from airflow_provider_scope.protocol import repair
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.protocol.recovery import CommittedBatch, Restored, rolled_back
from airflow_provider_scope.scope import engine as scope_engine
from airflow_provider_scope.scope import fate
from airflow_provider_scope.scope.fate import changes
from airflow_provider_scope.scope.jobs import MARKER_PROPERTY
from airflow_provider_scope.values import check_as_logged
from tests.crash.schedules import Turns
from tests.crash.scope_service import TIMEOUT_SECONDS, Served, Service, scope_runner
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Call, Gate, open_gate
from tests.support.memory_engine import MemoryEngine, MemoryTable, Row, Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.recovery import TableState
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.scope.jobs import BatchIdentity

FOREIGN = "elsewhere"
"""The file of rows that another writer adds."""


@dataclass(frozen=True)
class Commit(Version):
    """One commit of a table, with what the engine reads of it."""

    mark: str | None = None
    """The mark that the table has after it."""
    writes_metadata: bool = False
    adds: bool = False
    attempt: int | None = None
    """Whose job added the rows."""

    def text(self) -> bytes:
        """Return it as Delta's log has it, as far as the engine looks."""
        actions: list[dict[str, Any]] = []
        if self.restored is not None:
            actions.append({"commitInfo": {"operation": "RESTORE"}})
        elif self.adds and self.attempt is None:
            actions.append({"commitInfo": {"operation": "WRITE", "engineInfo": "elsewhere"}})
        if self.writes_metadata:
            configuration = {} if self.mark is None else {MARKER_PROPERTY: self.mark}
            actions.append({"metaData": {"configuration": configuration}})
        if self.adds:
            stats = json.dumps({"numRecords": self.added})
            actions.append({"add": {"dataChange": True, "size": 1, "stats": stats}})
        # A commit has at least a line; an empty file is a damaged one.
        return b"".join(json.dumps(action).encode() + b"\n" for action in actions or [{"commitInfo": {}}])


class ScopeTable(MemoryTable):
    """A table in memory that jobs and others write."""

    cleaned = 0
    """The log no longer holds the versions below this one."""

    @property
    def mark(self) -> str | None:
        newest = self.versions[-1] if self.versions else None
        return newest.mark if isinstance(newest, Commit) else None

    def set_mark(self, mark: str) -> None:
        if not self.versions:
            self.versions.append(Commit(Counter(), {}, writes_metadata=True))
        self.versions.append(Commit(self.rows, {}, mark=mark, writes_metadata=True))

    def delete_all(self) -> None:
        self.versions.append(Commit(Counter(), {}, mark=self.mark))

    def insert(self, rows: list[Row], pipeline: str, seq: int, attempt: int) -> None:
        added, count = self.rows + Counter(rows), len(rows)
        self.versions.append(
            Commit(added, {}, pipeline, seq, count, mark=self.mark, adds=True, attempt=attempt)
        )

    def append_foreign(self) -> None:
        """Let another writer append a row."""
        row = (FOREIGN, len(self.versions), 1)
        self.versions.append(Commit(self.rows + Counter([row]), {}, added=1, mark=self.mark, adds=True))

    def holds(self, seq: int, attempt: int) -> bool:
        """Return whether the rows of an attempt are in the table."""
        restores = [Restored(n, v.restored) for n, v in enumerate(self.versions) if v.restored is not None]
        return any(
            isinstance(version, Commit)
            and (version.seq, version.attempt) == (seq, attempt)
            and not rolled_back(CommittedBatch(number, None, None), restores)
            for number, version in enumerate(self.versions)
        )

    def restore(self, version: int) -> None:
        old = self.versions[version]
        assert isinstance(old, Commit)
        self.versions.append(
            Commit(
                old.rows,
                {},
                restored=version,
                mark=old.mark,
                writes_metadata=old.mark != self.mark,
                adds=bool(old.rows - self.rows),
            )
        )

    def recreate(self) -> None:
        self.versions = [Commit(Counter(), {}, writes_metadata=True)]
        self.created += 1
        self.cleaned = 0


class Looking(MemoryEngine):
    """What the engine sees of a table of which a part of the log was cleaned up."""

    table: ScopeTable

    def look(self, location: str, pipeline: str | None, baseline: Any) -> TableState:
        expected, since = baseline
        state = super().look(location, pipeline, baseline)
        if state.identity is None or not self.table.cleaned:
            return state
        same = expected is not None and expected.table_id == state.identity.table_id
        if same and since + 1 < self.table.cleaned:
            raise BatchOutcomeUnknownError("the log no longer holds all versions since the newest record")
        restores = tuple(r for r in state.restores if r.version >= self.table.cleaned)
        newest = max((r.version for r in restores), default=expected.restore_version if same else None)
        identity = replace(state.identity, restore_version=newest)
        return replace(state, identity=identity, restores=restores, oldest=self.table.cleaned)


class Scripts:
    """What scripts do to a table in memory; a script is a JSON object."""

    def __init__(self, world: ScopeWorld) -> None:
        self.world = world

    def steps(self, script: str) -> list[str]:
        if not script.startswith("{"):
            return []  # a no-op
        delete = ["delete"] if json.loads(script)["overwrite"] else []
        return ["mark", *delete, "insert", "close"]

    def take(self, job: Served, step: str) -> None:
        value = json.loads(job.script)
        table = self.world.delta
        if step == "mark":
            table.set_mark(value["mark"])
        elif step == "close":
            table.set_mark(value["closing mark"])
        elif step == "delete":
            table.delete_all()
        else:
            rows = [row for path in value["files"] for row in self.world.memory.content[path]]
            table.insert(rows, value["pipeline"], value["seq"], value["attempt"])


class ScopeWorld(MemoryWorld):
    """The SCOPE engine over a table in memory."""

    delta: ScopeTable

    def __init__(self, *, interval: int = 3, retention: int = 100) -> None:
        super().__init__(interval=interval, retention=retention)
        self.delta = ScopeTable()
        self.now = 1_700_000_000.0
        self.service = Service(Scripts(self), now=lambda: self.now)
        self.inline_wait: float | None = None
        self.timeout = TIMEOUT_SECONDS

    def engine(self, gate: Gate) -> Any:
        return scope_runner(self, gate, self.timeout)

    def sleep(self, gate: Gate, seconds: float) -> None:
        gate(Call("sleep"), lambda: None)
        self.now += seconds
        if in_main():
            for job in self.service.running():
                self.service.step(job)

    def script(self, identity: BatchIdentity, entry: OffsetEntry) -> str:
        found = ((file, self.memory.source.get(file.path)) for file in entry.files)
        looks = ((file, now and (now.modified_ms, now.size_bytes)) for file, now in found)
        check_as_logged(entry.seq, looks, kept="everything")
        return json.dumps(
            {
                "mark": identity.marker,
                "closing mark": identity.closing_marker,
                "pipeline": identity.pipeline,
                "seq": identity.seq,
                "attempt": identity.attempt,
                "overwrite": entry.overwrites_table,
                "files": [file.path for file in entry.files],
            }
        )

    def rows(self) -> Counter[Row]:
        """Return the rows of files: what another writer added is no concern of the pipeline's."""
        return Counter({row: count for row, count in self.delta.rows.items() if row[0] != FOREIGN})

    def run(self, gate: Gate = open_gate, **kwargs: Any) -> RunReport:
        with self.seen_by_engine():
            return super().run(gate, **kwargs)

    def abandon(self, seq: int, gate: Gate = open_gate) -> CommitRecord:
        with self.seen_by_engine():
            return super().abandon(seq, gate)

    def accept(self, gate: Gate = open_gate, **kwargs: Any) -> None:
        with self.seen_by_engine():
            super().accept(gate, **kwargs)

    def settle(self) -> bool:
        """Decide, rightly, about the job of which nobody else can tell; False if there is none."""
        log, engine = self.log(), self.engine(open_gate)
        work = Work(repair.existing_pipeline(log).pipeline, self.table, log.location)
        with self.seen_by_engine():
            for entry in log.open_entries():
                attempt = engine.undecidable(work, entry.seq)
                if attempt:
                    committed = self.delta.holds(entry.seq, attempt.number)
                    try:
                        engine.settle(self.table, entry.seq, committed=committed)
                    except InputError:  # accepting the table then asks for a refresh
                        engine.settle(self.table, entry.seq, committed=True)
                    return True
        return False

    # ---- what the engine reads of the table --------------------------------------------------------

    @contextmanager
    def seen_by_engine(self) -> Iterator[None]:
        """Have the engine read this table; in a schedule, one step at a time."""
        if not in_main():
            yield  # the schedule did it for all its runs
            return
        with self.patched():
            yield

    @contextmanager
    def patched(self) -> Iterator[None]:
        look = Looking(self.delta, self.memory).look

        def read_commits(*arguments: Any) -> Any:
            return changes(*arguments[:3], self)  # type: ignore[arg-type]

        def newest(_location: str, _storage: Any = None) -> Any:
            return _turn("version", self.version)

        with (
            # Jobs write no transactions, so there are none of the pipeline to look for.
            patch.object(scope_engine, "probe", lambda *a: _turn("probe", lambda: look(a[0], None, a[2]))),
            patch.object(scope_engine, "newest_version", newest),
            patch.object(fate, "newest_version", newest),
            patch.object(fate, "changes", lambda *a: _turn("changes", lambda: read_commits(*a))),
            patch.object(scope_engine, "changes", read_commits),
        ):
            yield

    def read(self, name: str, _at_most: int = 0) -> Any:
        """Read a record of the checkpoint or, for the engine, a commit of the table."""
        folder, _, file = name.rpartition("/_delta_log/")
        if not folder:
            return super().read(name)
        number = int(file.removesuffix(".json"))
        if number >= len(self.delta.versions) or number < self.delta.cleaned:
            return None  # the table was created again in between, or the log was cleaned up
        found = self.delta.versions[number]
        assert isinstance(found, Commit)
        return found.text()

    # ---- what must be so at any time ---------------------------------------------------------------

    def unwanted_cancels(self) -> list[str]:
        """Name the jobs that somebody cancelled although nobody had given their batch up."""
        log = self.log()
        wrong = []
        for job in self.service.jobs.values():
            if job.cancelled and not job.is_void:
                seq = json.loads(job.script)["seq"]
                if not any(attempt.void for attempt in log.attempts(seq)):
                    wrong.append(f"{job.name} was cancelled, and its batch was not given up")
        return wrong


def in_main() -> bool:
    """Return whether nothing else takes turns with the caller."""
    return getcurrent().parent is None


def _turn(name: str, effect: Any) -> Any:
    gate: Gate = open_gate if in_main() else Turns()
    return gate(Call(name), effect)
