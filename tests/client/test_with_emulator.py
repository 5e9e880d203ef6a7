"""The clients against the emulator: whatever gets lost on the way, everything happens once."""

from __future__ import annotations

import pytest

from airflow_provider_scope.emulator import Emulator, Fault
from airflow_provider_scope.exceptions import JobMismatchError
from airflow_provider_scope.scope.client import AdlaClient
from airflow_provider_scope.scope.jobs import NewJob, Related
from airflow_provider_scope.stores.webhdfs import WebHdfsClient
from tests.client.server import client_of

ID = "d2a5c7d4-0d0f-4d4b-8a6c-2a0d5f1f3f10"
RUN = "5d0e1f2a-0000-4000-8000-000000000001"
NEW = NewJob(
    name="flights",
    script='#DECLARE @x string = "1";',
    degree_of_parallelism=1,
    priority=1,
    related=Related(recurrence_id=RUN, run_id=RUN),
)
QUEUED = {"state_seconds": {"Queued": 3600.0}}


def jobs(emulator: Emulator, **options) -> AdlaClient:
    return AdlaClient(client_of(emulator.url, **options))


def files(emulator: Emulator, **options) -> WebHdfsClient:
    return WebHdfsClient(client_of(emulator.url, **options), "adl://acme.azuredatalakestore.net")


@pytest.mark.parametrize("duplicate_put", ["idempotent", "conflict"])
@pytest.mark.parametrize("kind", ["drop_before", "drop_after", "status"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_submission_that_gets_lost_makes_one_job(tmp_path, duplicate_put, kind, times):
    faults = (Fault(kind=kind, op="submit", times=times),)

    with Emulator(tmp_path, duplicate_put=duplicate_put, faults=faults, **QUEUED) as emulator:
        client = jobs(emulator)
        job = client.submit(ID, NEW)
        again = client.submit(ID, NEW)
        listed = [found.job_id for found in client.list()]

    assert job.job_id == again.job_id == ID
    assert listed == [ID]


def test_another_script_under_the_same_id_is_refused_and_the_job_stays(tmp_path):
    other = NewJob(name="flights", script="another", degree_of_parallelism=1, priority=1)

    with Emulator(tmp_path, **QUEUED) as emulator:
        client = jobs(emulator)
        client.submit(ID, NEW)
        with pytest.raises(JobMismatchError, match="another script"):
            client.submit(ID, other)

        assert client.get(ID).script == NEW.script


def test_a_walk_over_pages_and_lost_answers_has_every_file_once(tmp_path):
    names = {f"/landing/{a} {b}/{n}+#?.ss" for a in "aB" for b in "é%" for n in range(7)}
    storm = Fault(kind="drop_after", op="liststatus", probability=0.3)

    with Emulator(tmp_path) as emulator:
        client = files(emulator, retries=50)
        for name in names:
            client.upload(name, b"12345")
        emulator.set(faults=(storm,), seed=7)
        found = [(file.path, file.size_bytes) for file in client.walk("/landing")]

    assert sorted(found) == sorted((f"adl://acme.azuredatalakestore.net{name}", 5) for name in names)
