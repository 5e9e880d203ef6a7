"""The jobs on disk: one file each, replaced at once, so a kill leaves the old or the new record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_provider_scope.emulator.job import Job

if TYPE_CHECKING:
    from pathlib import Path


class JobFiles:
    """The folder of the jobs.

    Files are not forced to the disk: they survive a kill of the process, not a power cut.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> list[Job]:
        """Read all jobs, in the order of their submission."""
        jobs = [Job.from_record(json.loads(path.read_bytes())) for path in self._folder.glob("*.json")]
        return sorted(jobs, key=lambda job: (job.submitted, job.order))

    def save(self, job: Job) -> None:
        """Write a job."""
        written = self._folder / f".{job.job_id}.tmp"
        written.write_text(json.dumps(job.to_record()), encoding="utf-8")
        written.replace(self._folder / f"{job.job_id}.json")

    def delete(self, job_id: str) -> None:
        """Forget a job."""
        (self._folder / f"{job_id}.json").unlink(missing_ok=True)
