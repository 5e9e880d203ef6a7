"""The files and tables of the Dags, the service that runs their jobs, and what is true of them in the end."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.scope.client import AdlaClient
from airflow_provider_scope.stores.calls import Repeating, Token, Tokens
from airflow_provider_scope.stores.http import HttpClient
from airflow_provider_scope.waiting import outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.waiting import Job

ROWS = 3
"""Of each file."""
MOOD_SECONDS = 15.0
SHORT_SHARE = 0.3
SHORT_JOB = (1.0, 8.0)
LONG_JOB = (16.0, 30.0)
"""Seconds; a worker waits for 15."""
FAULTS = (
    {"kind": "drop_after", "op": "submit", "service": "jobs", "probability": 0.15},
    {"kind": "drop_before", "service": "jobs", "probability": 0.02},
    {"kind": "status", "service": "jobs", "status": 503, "probability": 0.02},
    {"kind": "fail_after_commit", "probability": 0.05},
    {"kind": "fail_job", "probability": 0.05},
)


@dataclass(slots=True)
class Verdict:
    """What is true in the end."""

    committed: int = 0
    """Files whose rows are in their table, once each."""
    doubled: int = 0
    lost: int = 0
    left_running: int = 0
    wrongly_cancelled: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    """How the jobs ended."""

    def __str__(self) -> str:
        """Return the last line."""
        return (
            f"jobs committed {self.committed}, doubled {self.doubled}, lost {self.lost}, "
            f"left running {self.left_running}, wrongly cancelled {self.wrongly_cancelled}"
        )


class World:
    """Folders and tables below an account directory, and the emulator over it.

    Jobs run for a time that changes all the while, and requests and jobs fail now and then.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.emulator = Emulator(folder, seed=seed, faults=FAULTS).start()
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._moods = threading.Thread(target=self._change_durations, daemon=True)
        self._moods.start()
        tokens = Tokens(lambda: Token("a token of the tests", 2**40))
        self._client = AdlaClient(
            HttpClient(self.emulator.url, tokens, timeout_seconds=30.0, repeating=Repeating(retries=9))
        )
        self.files: Counter[str] = Counter()

    def land(self, dag: str, files: int) -> None:
        """Add files to a Dag's folder."""
        folder = self.folder / "landing" / dag
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            self.files[dag] += 1
            table = pa.table({"number": pa.array(range(ROWS), pa.int64())})
            parquet.write_table(table, folder / f"{self.files[dag]:03}.ss")

    def jobs(self) -> list[Job]:
        """Return all jobs that were ever submitted."""
        return list(self._client.list())

    def judge(self, marked: Callable[[str, float], bool]) -> Verdict:
        """Compare the tables with the files, and look at all jobs.

        :param marked: Tells whether a Dag's task was marked as failed at a time, so that its job had to be
            cancelled.
        """
        verdict = Verdict()
        for dag, files in self.files.items():
            rows = DeltaTable(self.folder / "tables" / dag).to_pyarrow_table()
            found = Counter(zip(rows["source_file_uri"].to_pylist(), rows["number"].to_pylist(), strict=True))
            by_name = {f"{number:03}.ss": Counter[int]() for number in range(1, files + 1)}
            for (uri, number), times in found.items():
                by_name[uri.rpartition("/")[2]][number] += times
            once = Counter(range(ROWS))
            verdict.committed += sum(rows == once for rows in by_name.values())
            verdict.doubled += sum(bool(rows - once) for rows in by_name.values())
            verdict.lost += sum(bool(once - rows) for rows in by_name.values())
        for job in self.jobs():
            verdict.jobs[outcome(job)] += 1
            verdict.left_running += outcome(job) == "waiting"
            if outcome(job) == "cancelled" and job.ended_at_ms:
                dag = job.name.split("_")[0]
                verdict.wrongly_cancelled += not marked(dag, job.ended_at_ms / 1000)
        return verdict

    def close(self) -> None:
        """Stop the emulator."""
        self._over.set()
        self._moods.join()
        self.emulator.stop()

    def _change_durations(self) -> None:
        while True:
            bounds = SHORT_JOB if self._random.random() < SHORT_SHARE else LONG_JOB
            self.emulator.set(state_seconds={"Running": self._random.uniform(*bounds)})
            if self._over.wait(MOOD_SECONDS):
                return
