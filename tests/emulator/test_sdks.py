"""The real clients of the two services, and fsspec's WebHDFS, against the emulator."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace

import pytest
from azure.datalake import store as adls
from azure.mgmt.datalake.analytics import job as adla
from azure.mgmt.datalake.analytics.job import models
from fsspec.implementations.webhdfs import WebHDFS
from msrest.authentication import BasicTokenAuthentication

SCRIPT = '#DECLARE @x string = "1";'


@pytest.fixture
def job_client(recorded):
    """The SDK asks ``https://{account}.{suffix}``; the template of its address is replaced."""
    client = adla.DataLakeAnalyticsJobManagementClient(
        BasicTokenAuthentication({"access_token": "x"}), f"127.0.0.1:{recorded.port}"
    )
    client.config.base_url = "http://{adlaJobDnsSuffix}/{accountName}"
    client.config.retry_policy.backoff_factor = 0.01
    return client.job


def parameters(name="m_orders", **fields):
    return models.CreateJobParameters(
        type="Scope", name=name, properties=models.CreateScopeJobProperties(script=SCRIPT), **fields
    )


@pytest.fixture
def file_client(emulator):
    class Client(adls.core.AzureDLFileSystem):
        def connect(self):
            super().connect()
            self.azure.url = f"{emulator.url}/acct/"

    credential = SimpleNamespace(
        get_token=lambda *_, **__: SimpleNamespace(token="x", expires_on=int(time.time()) + 3600)
    )
    return Client(token_credential=credential, store_name="acct")


def test_the_job_sdk_submits_reads_lists_and_cancels(recorded, job_client):
    recorded.set(state_seconds={"Running": 3600}, page_size=2)
    ids = [str(uuid.uuid4()) for _ in range(5)]
    for number, job_id in enumerate(ids):
        created = job_client.create("acct", job_id, parameters(f"m_{number}", priority=7))
        assert created.state == models.JobState.compiling
    job = job_client.get("acct", ids[0])
    assert (job.name, job.priority, job.properties.script) == ("m_0", 7, SCRIPT)
    assert job.submit_time.timestamp() == 1_800_000_000
    assert [audit.new_state for audit in job.state_audit_records][:2] == ["New", "Compiling"]
    listed = job_client.list("acct", filter="startswith(name,'m_') and state ne 'Ended'", orderby="name desc")
    assert [item.name for item in listed] == ["m_4", "m_3", "m_2", "m_1", "m_0"]
    job_client.cancel("acct", ids[0], polling=False)
    ended = job_client.get("acct", ids[0])
    assert (ended.state, ended.result) == (models.JobState.ended, models.JobResult.cancelled)
    assert ended.error_message[0].error_id == "I_USER_CJS_CANCELEDBYUSER"


def test_the_job_sdk_updates_yields_and_builds(recorded, job_client):
    recorded.set(state_seconds={"Running": 3600})
    job_id = str(uuid.uuid4())
    job_client.create("acct", job_id, parameters())
    job_client.update("acct", job_id, models.UpdateJobParameters(priority=3), polling=False)
    assert job_client.get("acct", job_id).priority == 3
    job_client.yield_method("acct", job_id, polling=False)
    states = [audit.new_state for audit in job_client.get("acct", job_id).state_audit_records]
    assert "Yielded" in states
    built = job_client.build(
        "acct",
        models.BuildJobParameters(
            type="Scope", properties=models.CreateScopeJobProperties(script="NONSENSE;")
        ),
    )
    assert built.result == models.JobResult.failed


def test_the_job_sdk_knows_an_unknown_job_by_its_code(job_client):
    with pytest.raises(Exception, match="Job is not found") as caught:
        job_client.get("acct", str(uuid.uuid4()))
    assert caught.value.error.error == "JobNotFound"


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "op": "submit", "status": 429, "retry_after": 0, "times": 1},
        {"kind": "status", "op": "submit", "status": 503, "times": 2},
        {"kind": "status", "op": "get", "status": 503, "times": 2},
        {"kind": "drop_after", "op": "submit", "times": 1},
    ],
)
def test_case_27_the_job_sdk_gets_over_faults_with_one_job(recorded, job_client, executor, fault):
    recorded.set(faults=[fault])
    job_id = str(uuid.uuid4())
    job_client.create("acct", job_id, parameters())
    while job_client.get("acct", job_id).state != models.JobState.ended:
        pass
    assert recorded.counts()[f"fault.{fault['kind']}"] == fault["times"]
    assert recorded.counts()["jobs.submitted"] == 1
    assert executor.ran == [job_id]


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
    file_client.set_expiry("/e.ss", "RelativeToNow", 3_600_000)
    assert file_client.info("/e.ss", invalidate_cache=True)["msExpirationTime"] > 0
    file_client.rm("/d", recursive=True)
    assert not file_client.exists("/d", invalidate_cache=True)
    with pytest.raises(FileNotFoundError):
        file_client.info("/d", invalidate_cache=True)


def test_the_file_sdk_joins_files_and_pages_through_a_folder(emulator, file_client):
    for name in "ab":
        with file_client.open(f"/parts/{name}", "wb") as file:
            file.write(name.encode())
    file_client.concat("/whole", ["/parts/a", "/parts/b"], delete_source=True)
    assert file_client.cat("/whole") == b"ab"
    for number in range(5):
        file_client.touch(f"/many/{number}")
    emulator.set(list_cap=2)
    assert file_client.ls("/many", invalidate_cache=True) == [f"many/{number}" for number in range(5)]
    assert emulator.counts()["requests.files.liststatus"] >= 3


def test_case_50_fsspec_agrees_on_names_lengths_and_content(emulator):
    client = WebHDFS("127.0.0.1", port=emulator.port, user="u", use_listings_cache=False)
    (emulator.account.root / "d").mkdir()
    (emulator.account.root / "d/a b#.ss").write_bytes(b"12345")
    assert client.ls("/d", detail=False) == ["/d/a b#.ss"]
    assert client.info("/d/a b#.ss")["size"] == 5
    assert client.cat("/d/a b#.ss") == b"12345"
    with client.open("/e/new", "wb") as file:
        file.write(b"hello")
    assert (emulator.account.root / "e/new").read_bytes() == b"hello"
    assert client.exists("/e/new")
    assert not client.exists("/e/none")
    assert client.content_summary("/e")["fileCount"] == 1
    client.mkdir("/g")
    client.mv("/e/new", "/g/new")
    client.rm("/e", recursive=True)
    assert sorted(client.ls("/", detail=False)) == ["/d", "/g"]
