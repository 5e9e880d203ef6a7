"""A source, a table and a checkpoint in memory, and a job service: the SCOPE engine as it is, on top."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from greenlet import getcurrent

from airflow_provider_scope.engines import scope
from airflow_provider_scope.engines.scope import JobSettings, ScopeRunner
from airflow_provider_scope.exceptions import SourceFileGoneError
from airflow_provider_scope.script.batch import MARKER_PROPERTY
from airflow_provider_scope.table import changes as commits
from tests.crash.schedules import Turns
from tests.crash.scope_service import GatedJobs, Served, Service
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Call, Gate, open_gate
from tests.support.memory_engine import MemoryEngine, MemoryTable, Row, Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.core.report import RunReport
    from airflow_provider_scope.script.batch import BatchIdentity

TIMEOUT_SECONDS = 36_000.0


@dataclass(frozen=True)
class Commit(Version):
    """One commit of a table, with what the engine reads of it."""

    mark: str | None = None
    """The mark that the table has after it."""
    writes_metadata: bool = False
    adds: bool = False

    def text(self) -> bytes:
        """Give it as Delta's log has it, as far as the engine looks."""
        actions: list[dict[str, Any]] = []
        if self.restored is not None:
            actions.append({"commitInfo": {"operation": "RESTORE"}})
        if self.writes_metadata:
            configuration = {} if self.mark is None else {MARKER_PROPERTY: self.mark}
            actions.append({"metaData": {"configuration": configuration}})
        if self.adds:
            stats = json.dumps({"numRecords": self.added})
            actions.append({"add": {"dataChange": True, "size": 1, "stats": stats}})
        return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


class ScopeTable(MemoryTable):
    """A table in memory that jobs write."""

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

    def insert(self, rows: list[Row], pipeline: str, seq: int) -> None:
        self.versions.append(
            Commit(self.rows + Counter(rows), {}, pipeline, seq, len(rows), mark=self.mark, adds=True)
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


class Scripts:
    """What scripts do to a table in memory; a script is a JSON object."""

    def __init__(self, world: ScopeWorld) -> None:
        self.world = world

    def steps(self, script: str) -> list[str]:
        if not script.startswith("{"):
            return []  # a no-op
        return ["mark", "delete", "insert"] if json.loads(script)["overwrite"] else ["mark", "insert"]

    def take(self, job: Served, step: str) -> None:
        value = json.loads(job.script)
        table = self.world.delta
        if step == "mark":
            table.set_mark(value["mark"])
        elif step == "delete":
            table.delete_all()
        else:
            rows = [row for path in value["files"] for row in self.world.memory.content[path]]
            table.insert(rows, value["pipeline"], value["seq"])


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
        settings = JobSettings(
            name="load",
            au=1,
            priority=1,
            timeout_seconds=self.timeout,
            poll_seconds=10.0,
            inline_wait_seconds=self.inline_wait,
            run_id=str(uuid.uuid4()),
        )
        return ScopeRunner(
            jobs=GatedJobs(self.service, gate),
            log=self.log(gate),
            settings=settings,
            script=self.script,
            clock=lambda: self.now,
            sleep=lambda seconds: self.sleep(gate, seconds),
            random=lambda: 0.0,
            report=lambda _line: None,
        )

    def sleep(self, gate: Gate, seconds: float) -> None:
        gate(Call("sleep"), lambda: None)
        self.now += seconds
        if in_main():
            for job in self.service.running():
                self.service.step(job)

    def script(self, identity: BatchIdentity, entry: OffsetEntry) -> str:
        for file in entry.files:
            if self.memory.source.get(file.path) != file:
                raise SourceFileGoneError(f"{file.path} of batch {entry.seq} is gone")
        return json.dumps(
            {
                "mark": identity.marker,
                "pipeline": identity.pipeline,
                "seq": identity.seq,
                "overwrite": entry.overwrites_table,
                "files": [file.path for file in entry.files],
            }
        )

    def run(self, gate: Gate = open_gate, **kwargs: Any) -> RunReport:
        with self.seen_by_engine():
            return super().run(gate, **kwargs)

    def abandon(self, seq: int, gate: Gate = open_gate) -> CommitRecord:
        with self.seen_by_engine():
            return super().abandon(seq, gate)

    def accept(self, gate: Gate = open_gate, **kwargs: Any) -> None:
        with self.seen_by_engine():
            super().accept(gate, **kwargs)

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
        look = MemoryEngine(self.delta, self.memory).look
        read_commits = commits.changes
        with (
            # Jobs write no transactions, so there are none of the pipeline to look for.
            patch.object(scope, "probe", lambda *a: _turn("probe", lambda: look(a[0], None, a[2]))),
            patch.object(scope, "newest_version", lambda _: _turn("version", self.version)),
            patch.object(scope, "changes", lambda *a: _turn("changes", lambda: read_commits(*a))),
            patch.object(commits, "open_storage", lambda _location: self),
        ):
            yield

    def read(self, name: str) -> Any:
        """Read a record of the checkpoint or, for the engine, a commit of the table."""
        folder, _, file = name.rpartition("/_delta_log/")
        if not folder:
            return super().read(name)
        number = int(file.removesuffix(".json"))
        if number >= len(self.delta.versions):
            return None  # the table was created again in between
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
    """Tell whether nothing else takes turns with the caller."""
    return getcurrent().parent is None


def _turn(name: str, effect: Any) -> Any:
    gate: Gate = open_gate if in_main() else Turns()
    return gate(Call(name), effect)
