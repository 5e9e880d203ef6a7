"""The SCOPE engine over files and a Delta table on a disk, with a job service that outlives its runners."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.emulator.files import Account
from airflow_provider_scope.emulator.scripts import ScriptRunner
from airflow_provider_scope.exceptions import JobRunningError
from airflow_provider_scope.scope.jobs import NewJob, Related
from airflow_provider_scope.scope.script import ScriptBatch, generate
from tests.crash.scope_service import Flaw, GatedJobs, Served, Service, scope_runner
from tests.crash.world import DeltaWorld
from tests.support.delta_engine import check_unchanged
from tests.support.faulty_storage import Call, Gate, open_gate

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.scope.jobs import BatchIdentity

COLUMNS = {"id": "long?", "day": "long?", "file": "string"}
MODEL = "SELECT id, day, source_file_uri AS file FROM @data"


class Statements:
    """Runs scripts as the emulator does: up to the rows, with the rows, and to the end."""

    def __init__(self, folder: Path) -> None:
        self.runner = ScriptRunner(Account(folder))

    def steps(self, script: str) -> list[str]:
        return ["mark", "insert", "close"] if "@data" in script else []

    def take(self, job: Served, step: str) -> None:
        script = {
            "mark": job.script.partition("@data =")[0],
            "insert": job.script.rpartition("ALTER TABLE")[0],
            "close": job.script,
        }[step]
        self.runner.execute(job.job_id, script, is_cancelled=lambda: False)


class DiskService(Service):
    """A service whose jobs are in a file: they are there after whoever submitted them is dead."""

    def __init__(self, folder: Path, flaw: Flaw) -> None:
        super().__init__(Statements(folder), flaw=self._flaw)
        self.path = folder / "jobs.json"
        self.first_flaw = flaw
        with suppress(FileNotFoundError):
            self._load(json.loads(self.path.read_text()))

    def submit(self, job_id: str, new: NewJob) -> Served:
        job = super().submit(job_id, new)
        self.save()
        return job

    def cancel(self, job_id: str) -> None:
        super().cancel(job_id)
        self.save()

    def step(self, job: Served) -> None:
        super().step(job)
        self.save()

    def delay(self, job_id: str, new: NewJob) -> None:
        super().delay(job_id, new)
        self.save()

    def deliver(self, number: int = 0) -> None:
        super().deliver(number)
        self.save()

    def save(self) -> None:
        self.path.write_text(self.dump())

    def _flaw(self, new: NewJob) -> Flaw:
        return "" if any(job.name == new.name for job in self.jobs.values()) else self.first_flaw

    def _load(self, kept: dict[str, Any]) -> None:
        self.jobs = {job["job_id"]: Served(**job) for job in kept["jobs"]}
        self.problems = kept["problems"]
        self.late = [
            (
                job_id,
                NewJob(
                    name=name,
                    script=script,
                    degree_of_parallelism=1,
                    priority=1,
                    related=Related(recurrence_id="", run_id=run_id),
                ),
            )
            for job_id, name, script, run_id in kept["late"]
        ]


class ScopeDiskWorld(DeltaWorld):
    """Files on a disk, a Delta table and jobs, below one folder."""

    def __init__(self, folder: Path, *, flaw: Flaw = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self.service = DiskService(folder, flaw)
        self.inline_wait: float | None = None
        self.now = 0.0

    def engine(self, gate: Gate) -> Any:
        return scope_runner(self, gate)

    def sleep(self, gate: Gate, seconds: float) -> None:
        """Let time pass: each job takes a step, and a submission that was on its way arrives."""
        gate(Call("sleep", writes=True), self._pass_time)
        self.now += seconds

    def _pass_time(self) -> None:
        if self.service.late:
            self.service.deliver()
        for job in self.service.running():
            self.service.step(job)

    def script(self, identity: BatchIdentity, entry: OffsetEntry) -> str:
        check_unchanged(entry)
        return generate(
            ScriptBatch(
                identity=identity,
                location=str(self.folder / "table"),
                sql=MODEL,
                files=entry.files,
                table_columns=COLUMNS,
                extract_columns={"id": "long?", "day": "long?"},
                virtual_columns=("source_file_uri",),
                overwrite=entry.overwrites_table,
            )
        )

    def defer_and_resume(self, gate: Gate) -> None:
        """Do what the operator and its trigger do: leave at a job that runs, watch it, start again."""
        while True:
            self.inline_wait = 0.0
            try:
                self.run(gate)
            except JobRunningError as err:
                watched = GatedJobs(self.service, gate)
                while (job := watched.get_job(err.job_id)) and job.state != "Ended":
                    self.sleep(gate, 10.0)
            else:
                return
            finally:
                self.inline_wait = None

    def settle(self, gate: Gate) -> None:
        """Say that the rows of the oldest open batch are in the table."""
        log = self.log(gate)
        seq = log.open_entries()[0].seq
        self.engine(gate).settle(self.table, seq, committed=True)

    def _values(self, lines: list[str]) -> list[Any]:
        values = super()._values(lines)
        for value in values:
            # A job that failed left a version, too.
            value.pop("table_version", None)
        return values

    def wrong_jobs(self) -> list[str]:
        """Name what is wrong with the jobs, once nothing is open any more."""
        log = self.log(open_gate)
        wrong = list(self.service.problems)
        for job in self.service.jobs.values():
            if not job.result and not job.is_void:
                wrong.append(f"{job.name} is left running")
            if job.cancelled and not job.is_void:
                seq = int(job.name.split("_batch")[1].split("_")[0])
                if not any(attempt.void for attempt in log.attempts(seq)):
                    wrong.append(f"{job.name} was cancelled, and its batch was not given up")
        return wrong


def leave_running(world: ScopeDiskWorld) -> None:
    """Leave the next batch's job running."""
    world.inline_wait = 0.0
    try:
        world.run()
    except JobRunningError:
        return
    finally:
        world.inline_wait = None
    raise AssertionError("no job runs")
