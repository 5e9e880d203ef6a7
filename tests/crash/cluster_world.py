"""Runs whose applications go on elsewhere: what kills the run kills none of them.

The manager is a folder with a file for each application. An application works while nobody looks: it commits
a batch before each look at it, so that a run sees it submitted, running and ended. The first one of each
batch dies before its last batch. One that may wait for further plans does so for a few looks, and then ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_scope.engines.cluster import ClusterEngine
from airflow_provider_scope.exceptions import (
    ServiceUnavailableError,
    SparkJobFailedError,
    TableUnreadableError,
)
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.specs import SparkEngine
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.waiting import Job, JobWait
from tests.crash.table_world import CursorDeltaWorld, CursorInDelta
from tests.crash.world import DeltaWorld
from tests.support.delta_engine import DeltaEngine
from tests.support.faulty_storage import Call, FaultyStorage, Gate, LostAnswer, open_gate
from tests.support.values import an_ingest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from airflow_provider_scope.engines.manager import Application
    from airflow_provider_scope.protocol.recovery import Baseline, TableState
    from airflow_provider_scope.protocol.report import RunReport
    from tests.support.batch_loop import BatchLoop

WAITS_LOOKS = 3
TRIES = 8
"""The first application for each batch dies, and a run has a few batches."""


@dataclass
class FolderManager:
    """Applications as files: the plan that each has, and how many of its batches are done."""

    folder: Path
    gate: Gate
    engine: BatchLoop = field(default_factory=DeltaEngine)
    """Commits the batches."""
    first_dies: bool = True
    poll_interval: float = 1.0
    keeps_secrets: bool = True

    def submit(self, application: Application) -> None:
        def effect() -> None:
            names = [path.name for path in self.folder.iterdir()] if self.folder.exists() else []
            running = [name for name in names if not self._read(name)["result"]]
            assert not running, "one is submitted while another one runs"
            first, *options = application.arguments
            state = {"first": first, "more": plans.MORE in options, "number": 0}
            self._write(application.name, {**state, "done": 0, "waited": 0, "result": ""})

        self._at_gate(Call(f"submit {self._short(application.name)}", writes=True), effect)

    def get_job(self, job_id: str) -> Job | None:
        return self.get_jobs([job_id]).get(job_id)

    def get_jobs(self, names: Sequence[str]) -> dict[str, Job]:
        def effect() -> dict[str, Job]:
            jobs = {}
            for name in names:
                if (self.folder / name).exists():
                    result = self._work(name)
                    jobs[name] = Job(
                        job_id=name, name=name, state="Ended" if result else "Running", result=result
                    )
            return jobs

        return self._at_gate(Call("ask the manager"), effect)

    def cancel_job(self, job_id: str) -> None:
        def effect() -> None:
            state = self._read(job_id)
            torn_down = SparkJobFailedError("The DAGScheduler is null.", kept="", do="look")
            place = plans.path(state["first"], state["number"])
            self._tell(place, {"event": "failed", "error": torn_down.to_dict()})
            self._write(job_id, {**state, "result": "Cancelled"})

        self._at_gate(Call(f"cancel {self._short(job_id)}", writes=True), effect)

    def log(self, name: str) -> Sequence[str]:
        return ["java.lang.OutOfMemoryError: it died"]

    def url_of(self, job_id: str) -> str:
        return ""

    def close(self) -> None:
        """Hold nothing open."""

    def _work(self, name: str) -> str:
        """Let an application commit its next batch; give its result, empty while it runs."""
        state = self._read(name)
        if state["result"]:
            return str(state["result"])
        storage = LocalStorage()
        place = plans.path(state["first"], state["number"])
        data = storage.read(place)
        if state["waited"] and data is None:
            state["waited"] += 1
            state["result"] = "Succeeded" if state["waited"] > WAITS_LOOKS else ""
            self._write(name, state)
            return str(state["result"])
        # What was taken may be deleted: whoever gives the next plan has seen that it was done.
        state["waited"] = 0
        plan = plans.decode(data if data is not None else state["taken"].encode())
        state["taken"] = plans.encode(plan).decode()
        if (
            self.first_dies
            and name.endswith("-0")
            and state["done"] == len(plan.batches) - 1
            and not state["more"]
        ):
            state["result"] = "Failed"
        elif state["done"] < len(plan.batches):
            entry = CheckpointLog(storage, plan.checkpoint).offset(plan.batches[state["done"]])
            work = Work(plan.pipeline, plan.table, plan.checkpoint, plan.first)
            self.engine.run_batch(work, entry, fence=plan.fence)
            self._tell(place, {"event": "batch", "seq": entry.seq, "what": "", "version": 0, "seconds": 0})
            state["done"] += 1
        elif state["more"] and plan.batches:
            self._tell(place, {"event": "waiting"})
            state |= {"number": state["number"] + 1, "done": 0, "waited": 1}
            state["result"] = "" if WAITS_LOOKS else "Succeeded"
        else:
            state["result"] = "Succeeded"
        self._write(name, state)
        return str(state["result"])

    def _tell(self, place: str, event: dict[str, Any]) -> None:
        storage, events = LocalStorage(), plans.events_path(place)
        storage.replace(events, (storage.read(events) or b"") + json.dumps(event).encode() + b"\n")

    def _at_gate(self, call: Call, effect: Any) -> Any:
        try:
            return self.gate(call, effect)
        except LostAnswer as err:
            raise ServiceUnavailableError(f"no answer to: {call.name}") from err

    def _short(self, name: str) -> str:
        return "-".join(name.split("-")[-2:])

    def _read(self, name: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / name).read_text())
        return state

    def _write(self, name: str, state: dict[str, Any]) -> None:
        self.folder.mkdir(exist_ok=True)
        LocalStorage().replace(f"file://{self.folder / name}", json.dumps(state).encode())


@dataclass(kw_only=True)
class GatedEngine(ClusterEngine):
    """The product's engine, with a gate in front of its look at the table."""

    gate: Gate = field(repr=False)

    def probe(self, location: str, pipeline: str | None, baseline: Baseline) -> TableState:
        try:
            return self.gate(
                Call("probe"), lambda: super(GatedEngine, self).probe(location, pipeline, baseline)
            )
        except LostAnswer as err:
            raise TableUnreadableError(f"no answer from {location}") from err


class ClusterWorld(DeltaWorld):
    """A table that applications of a cluster write. A run in it is a task with its tries."""

    first_dies: ClassVar[bool] = True
    """Whether the first application of each batch dies."""

    def run(self, gate: Gate = open_gate, *, engine: Any = None, **asked: Any) -> RunReport:
        for _ in range(TRIES):
            try:
                return super().run(gate, engine=engine, **asked)
            except SparkJobFailedError:
                asked["refresh"] = False  # it is logged
        raise AssertionError("every application died")

    def committer(self) -> BatchLoop:
        """Return what commits the batches of the applications."""
        return DeltaEngine()

    def engine(self, gate: Gate) -> Any:
        storage = FaultyStorage(self.storage, gate)
        manager: Any = FolderManager(self.folder / "manager", gate, self.committer(), self.first_dies)
        wait = JobWait(
            jobs=manager,
            timeout_seconds=float("inf"),
            poll_seconds=1.0,
            inline_wait_seconds=None,
            clock=lambda: 0.0,
            sleep=lambda _: None,
            random=lambda: 0.0,
            report=lambda _: None,
            forgets_ended=True,
        )
        return GatedEngine(
            ingest=an_ingest(delta_location=self.table),
            storage=storage,
            table_storage=self.storage,
            settings=SparkEngine(spark_conn_id="cluster", packages=()),
            wait=wait,
            stores={},
            report=lambda _: None,
            gate=gate,
        )


class ClusterInTurnWorld(ClusterWorld, CursorDeltaWorld):
    """A source whose batches follow from each other."""

    def committer(self) -> BatchLoop:
        return CursorInDelta(open_gate, self.source_table)
