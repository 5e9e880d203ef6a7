"""The SCOPE engine over files and a Delta table on a disk, with the emulator as its service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.scope.client import AdlaClient
from airflow_provider_scope.stores.calls import Token, Tokens
from airflow_provider_scope.stores.http import HttpClient
from tests.crash.scope_disk import ScopeDiskWorld

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_scope.scope.jobs import NewJob
    from airflow_provider_scope.waiting import Job
    from tests.support.faulty_storage import Gate

POLL_SECONDS = 0.02


class ClientJobs:
    """The client, by the names that a runner calls."""

    def __init__(self, url: str) -> None:
        tokens = Tokens(lambda: Token("a token of the tests", time.time() + 3600))
        self.client = AdlaClient(HttpClient(url, tokens, timeout_seconds=10.0))

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        return self.client.submit(job_id, new)

    def get_job(self, job_id: str) -> Job | None:
        return self.client.get(job_id)

    def cancel_job(self, job_id: str) -> None:
        self.client.cancel(job_id)


class EmulatorWorld(ScopeDiskWorld):
    """Files, a Delta table and the account of an emulator in one folder."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.url = url

    def engine(self, gate: Gate) -> Any:
        runner = super().engine(gate)
        runner.wait.jobs = ClientJobs(self.url)
        runner.wait.clock = time.time
        return runner

    def sleep(self, gate: Gate, seconds: float) -> None:
        time.sleep(POLL_SECONDS)
