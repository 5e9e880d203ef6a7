"""The real clients of the two services, as they are, against the emulator: they speak https alone."""

from __future__ import annotations

import uuid

import pytest
from azure.mgmt.datalake.analytics import job as adla
from azure.mgmt.datalake.analytics.job import models
from msrest.authentication import BasicTokenAuthentication

from tests.emulator.clients import AzureSdk

SCRIPT = '#DECLARE @x string = "1";'


@pytest.fixture
def recorded(start_emulator, clock, monkeypatch):
    """As ``recorded`` of the suite, and trusted by clients in this process."""
    emulator = start_emulator(clock=clock, tls=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(emulator.certificate))
    return emulator


@pytest.fixture
def client(recorded):
    """The SDK asks ``https://{account}.{suffix}``: the account is ``127``, the suffix all the rest."""
    client = adla.DataLakeAnalyticsJobManagementClient(
        BasicTokenAuthentication({"access_token": "x"}), f"0.0.1:{recorded.port}"
    )
    client.config.retry_policy.backoff_factor = 0.01
    return client


@pytest.fixture
def job_client(client):
    return client.job


def parameters(name="m_orders", **fields):
    return models.CreateJobParameters(
        type="Scope", name=name, properties=models.CreateScopeJobProperties(script=SCRIPT), **fields
    )


@pytest.fixture
def emulator(start_emulator, monkeypatch):
    emulator = start_emulator(tls=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(emulator.certificate))
    return emulator


@pytest.fixture
def file_client(emulator):
    return AzureSdk(emulator.port).fs


def test_the_job_sdk_submits_reads_lists_and_cancels(recorded, job_client):
    recorded.set(state_seconds={"Running": 3600}, page_size=2)
    ids = [str(uuid.uuid4()) for _ in range(5)]
    for number, job_id in enumerate(ids):
        created = job_client.create("127", job_id, parameters(f"m_{number}", priority=7))
        assert created.state == models.JobState.compiling
    job = job_client.get("127", ids[0])
    assert (job.name, job.priority, job.properties.script) == ("m_0", 7, SCRIPT)
    assert job.submit_time.timestamp() == 1_800_000_000
    assert [audit.new_state for audit in job.state_audit_records][:2] == ["New", "Compiling"]
    listed = job_client.list(
        "127", filter="startswith(name,'m_') and state ne 'Ended'", orderby="submitTime desc"
    )
    assert [item.name for item in listed] == ["m_4", "m_3", "m_2", "m_1", "m_0"]
    job_client.cancel("127", ids[0], polling=False)
    ended = job_client.get("127", ids[0])
    assert (ended.state, ended.result) == (models.JobState.ended, models.JobResult.cancelled)
    assert ended.error_message[0].error_id == "I_USER_CJS_CANCELEDBYUSER"


def test_the_job_sdk_knows_an_unknown_job_by_its_code(job_client):
    with pytest.raises(Exception, match="Job is not found") as caught:
        job_client.get("127", str(uuid.uuid4()))
    assert caught.value.error.error == "JobNotFound"


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "op": "submit", "status": 503, "times": 2},
        {"kind": "status", "op": "get", "status": 503, "times": 2},
        {"kind": "drop_after", "op": "submit", "times": 1},
    ],
)
def test_case_27_the_job_sdk_gets_over_faults_with_one_job(recorded, job_client, fault):
    recorded.set(faults=[fault])
    job_id = str(uuid.uuid4())
    job_client.create("127", job_id, parameters())
    while job_client.get("127", job_id).state != models.JobState.ended:
        pass
    assert recorded.counts()[f"fault.{fault['kind']}"] == fault["times"]
    assert recorded.counts()["jobs.submitted"] == 1
    assert recorded.counts()["jobs.executed"] == 1


def test_the_file_sdk_writes_lists_reads_and_removes(file_client):
    with file_client.open("/d/ä b+c.ss", "wb", blocksize=2**20) as file:
        file.write(b"x" * (2**20 + 5))
    assert file_client.ls("/d") == ["d/ä b+c.ss"]
    assert file_client.info("/d/ä b+c.ss")["length"] == 2**20 + 5
    assert file_client.cat("/d/ä b+c.ss") == b"x" * (2**20 + 5)
    with file_client.open("/d/ä b+c.ss", "ab") as file:
        file.write(b"end")
    with file_client.open("/d/ä b+c.ss", "rb") as file:
        file.seek(2**20 + 4)
        assert file.read() == b"xend"
    file_client.mv("/d/ä b+c.ss", "/e.ss")
    assert file_client.exists("/e.ss")
    file_client.mkdir("/f")
    assert sorted(file_client.ls("/")) == ["d", "e.ss", "f"]
    assert file_client.walk("/") == ["e.ss"]
    file_client.rm("/d", recursive=True)
    assert not file_client.exists("/d", invalidate_cache=True)
    with pytest.raises(FileNotFoundError):
        file_client.info("/d", invalidate_cache=True)
