"""The SDKs of both services read and write the account: what they expect of an answer, nobody here wrote."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from azure.datalake import store as adls
from azure.mgmt.datalake.analytics import job as adla
from azure.mgmt.datalake.analytics.job import models
from msrest.authentication import BasicTokenAuthentication


def bearer() -> Any:
    """A credential with a token that is good for an hour."""
    return SimpleNamespace(
        get_token=lambda *_, **__: SimpleNamespace(token="x", expires_on=int(time.time()) + 3600)
    )


@pytest.fixture
def fs(emulator):
    system = adls.core.AzureDLFileSystem(token_credential=bearer(), store_name="acme")
    system.azure.url = f"{emulator.url}/"  # it builds an address with https by itself
    return system


def names(fs, path):
    return [entry["name"].rpartition("/")[2] for entry in fs.ls(path, detail=True, invalidate_cache=True)]


def test_the_file_sdk_lists_pages_in_order_and_finds_nothing_where_nothing_is(fs, emulator):
    root = emulator.account.root
    (root / "empty").mkdir()
    (root / "secret").mkdir()
    for name in ("a", "B", "é", "a b%20,+#&"):
        (root / name).write_bytes(b"12")
    emulator.set(list_cap=2, denied_paths=["/secret"])
    assert names(fs, "/") == ["B", "a", "a b%20,+#&", "empty", "secret", "é"]
    assert names(fs, "/empty") == []
    assert (fs.info("/B")["length"], fs.exists("/a b%20,+#&"), fs.exists("/none")) == (2, True, False)
    with pytest.raises(FileNotFoundError, match="none"):
        fs.ls("/none")
    with pytest.raises(PermissionError):
        fs.ls("/secret")


def test_the_file_sdk_renames_and_removes_folders_with_what_is_in_them(fs, emulator):
    for _ in range(2):
        fs.mkdir("/a/b")
    (emulator.account.root / "f").write_bytes(b"12")
    fs.mv("/f", "/a/g")
    assert names(fs, "/a") == ["b", "g"]
    with pytest.raises(PermissionError):
        fs.rm("/a", recursive=False)
    fs.rm("/a", recursive=True)
    assert names(fs, "/") == []


SCRIPT = '#DECLARE @x string = "1";'


@pytest.fixture
def job_client(recorded):
    client = adla.DataLakeAnalyticsJobManagementClient(
        BasicTokenAuthentication({"access_token": "x"}), recorded.url.removeprefix("http://")
    )
    client.config.base_url = "http://{adlaJobDnsSuffix}/{accountName}"
    client.config.retry_policy.backoff_factor = 0.01
    return client.job


def parameters(name="m_orders", **fields):
    return models.CreateJobParameters(
        type="Scope", name=name, properties=models.CreateScopeJobProperties(script=SCRIPT), **fields
    )


def test_the_job_sdk_submits_reads_lists_and_cancels(recorded, job_client):
    recorded.set(state_seconds={"Running": 3600}, page_size=2)
    ids = [str(uuid.uuid4()) for _ in range(5)]
    for number, job_id in enumerate(ids):
        created = job_client.create("acme", job_id, parameters(f"m_{number}", priority=7))
        assert created.state == models.JobState.compiling
    job = job_client.get("acme", ids[0])
    assert (job.name, job.priority, job.properties.script) == ("m_0", 7, SCRIPT)
    assert job.submit_time.timestamp() == 1_800_000_000
    assert [audit.new_state for audit in job.state_audit_records][:2] == ["New", "Compiling"]
    listed = job_client.list(
        "acme", filter="startswith(name,'m_') and state ne 'Ended'", orderby="submitTime desc"
    )
    assert [item.name for item in listed] == ["m_4", "m_3", "m_2", "m_1", "m_0"]
    job_client.cancel("acme", ids[0], polling=False)
    ended = job_client.get("acme", ids[0])
    assert (ended.state, ended.result) == (models.JobState.ended, models.JobResult.cancelled)
    assert ended.error_message[0].error_id == "I_USER_CJS_CANCELEDBYUSER"


def test_the_job_sdk_knows_an_unknown_job_by_its_code(job_client):
    with pytest.raises(Exception, match="Job is not found") as caught:
        job_client.get("acme", str(uuid.uuid4()))
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
    job_client.create("acme", job_id, parameters())
    while job_client.get("acme", job_id).state != models.JobState.ended:
        pass
    assert recorded.counts()[f"fault.{fault['kind']}"] == fault["times"]
    assert recorded.counts()["jobs.submitted"] == 1
    assert recorded.counts()["jobs.executed"] == 1


def test_the_file_sdk_writes_in_blocks_and_reads_from_a_place(fs):
    with fs.open("/d/ä b+c.ss", "wb", blocksize=2**20) as file:
        file.write(b"x" * (2**20 + 5))
    with fs.open("/d/ä b+c.ss", "ab") as file:
        file.write(b"end")
    with fs.open("/d/ä b+c.ss", "rb") as file:
        file.seek(2**20 + 4)
        assert file.read() == b"xend"
    assert fs.walk("/") == ["d/ä b+c.ss"]
