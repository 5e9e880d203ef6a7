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


def _length(status: dict[str, Any]) -> int | None:
    return status["length"] if status["type"] == "FILE" else None


class AzureSdk:
    """``azure-datalake-store``, which builds an address with https by itself."""

    Missing = FileNotFoundError
    Refused = (PermissionError, adls.exceptions.DatalakeRESTException)

    def __init__(self, url: str) -> None:
        self.fs = adls.core.AzureDLFileSystem(token_credential=bearer(), store_name="acme")
        self.fs.azure.url = f"{url}/"

    def names(self, path: str) -> dict[str, int | None]:
        found = self.fs.ls(path, detail=True, invalidate_cache=True)
        return {entry["name"].rpartition("/")[2]: _length(entry) for entry in found}

    def length(self, path: str) -> int | None:
        return _length(self.fs.info(path, invalidate_cache=True))

    def exists(self, path: str) -> bool:
        return self.fs.exists(path, invalidate_cache=True)

    def read(self, path: str, start: int, end: int) -> bytes:
        return self.fs.read_block(path, start, end - start)

    def write(self, path: str, data: bytes) -> None:
        with self.fs.open(path, "wb") as file:
            file.write(data)

    def append(self, path: str, data: bytes) -> None:
        with self.fs.open(path, "ab") as file:
            file.write(data)

    def mkdirs(self, path: str) -> None:
        self.fs.mkdir(path)

    def rename(self, path: str, target: str) -> None:
        self.fs.mv(path, target)

    def delete(self, path: str, *, recursive: bool) -> None:
        self.fs.rm(path, recursive=recursive)


def bearer() -> Any:
    """A credential with a token that is good for an hour."""
    return SimpleNamespace(
        get_token=lambda *_, **__: SimpleNamespace(token="x", expires_on=int(time.time()) + 3600)
    )


@pytest.fixture
def root(emulator):
    return emulator.account.root


@pytest.fixture
def client(emulator):
    return AzureSdk(emulator.url)


def test_case_50_on_29_an_empty_folder_is_there_and_holds_nothing(client, root):
    (root / "d").mkdir()
    assert client.names("/d") == {}
    assert client.exists("/d")
    assert client.length("/d") is None


def test_case_50_on_30_and_31_a_listing_has_every_name_in_the_order_of_the_service(client, root):
    for name in ("a", "B", "c1", "é"):
        (root / name).write_bytes(name.encode())
    (root / "c").mkdir()
    expected = {"B": 1, "a": 1, "c": None, "c1": 2, "é": 2}
    assert client.names("/") == expected
    assert list(client.names("/")) == list(expected)


def test_case_50_on_31_a_client_that_pages_sees_what_is_above_the_cap(client, emulator, root):
    emulator.set(list_cap=2)
    for name in "abcde":
        (root / name).write_bytes(b"")
    assert list(client.names("/")) == list("abcde")


def test_case_50_on_33_a_missing_path_is_missing_and_a_forbidden_one_is_not(client, emulator, root):
    (root / "secret").mkdir()
    emulator.set(denied_paths=["/secret"])
    with pytest.raises(client.Missing, match="none"):
        client.names("/none")
    with pytest.raises(client.Missing, match="none/f"):
        client.length("/none/f")
    assert not client.exists("/none")
    with pytest.raises(client.Refused):
        client.names("/secret")


def test_case_50_on_34_and_39_a_file_has_its_length_and_its_bytes(client, root):
    (root / "d").mkdir()
    (root / "d/f").write_bytes(b"0123456789")
    assert client.length("/d/f") == 10
    assert client.read("/d/f", 0, 10) == b"0123456789"
    assert client.read("/d/f", 3, 7) == b"3456"


def test_case_50_on_35_and_36_what_is_written_is_there(client, root):
    client.write("/a/b/f", b"hello")
    assert (root / "a/b/f").read_bytes() == b"hello"
    assert client.names("/a/b") == {"f": 5}


def test_case_50_on_37_and_38_what_is_appended_is_there(client, root):
    client.write("/a/b/f", b"hello")
    client.append("/a/b/f", b" world")
    assert (root / "a/b/f").read_bytes() == b"hello world"
    assert client.names("/a/b") == {"f": 11}
    assert client.length("/a/b/f") == 11


def test_case_50_on_40_and_42_folders_come_and_go(client, root):
    for _ in range(2):
        client.mkdirs("/a/b/c")
    assert client.names("/a") == {"b": None}
    assert client.exists("/a/b/c")
    with pytest.raises(client.Refused):
        client.delete("/a", recursive=False)
    assert client.exists("/a/b/c")
    client.delete("/a", recursive=True)
    assert not client.exists("/a")
    assert not (root / "a").exists()


def test_case_50_on_41_a_file_is_under_its_new_name_alone(client, root):
    (root / "d").mkdir()
    (root / "f").write_bytes(b"12")
    client.rename("/f", "/d/g")
    assert client.names("/") == {"d": None}
    assert client.names("/d") == {"g": 2}
    assert (client.exists("/f"), client.exists("/d/g")) == (False, True)


@pytest.mark.parametrize("name", ["a b", "a%20b", "ä€😀", "12,+3#4&56.txt"])
def test_case_50_on_44_names_come_back_as_they_were(client, root, name):
    client.write(f"/d/{name}", b"1")
    assert (root / "d" / name).read_bytes() == b"1"
    assert client.names("/d") == {name: 1}
    assert client.exists(f"/d/{name}")
    assert client.read(f"/d/{name}", 0, 1) == b"1"


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


def test_the_file_sdk_writes_in_blocks_and_reads_from_a_place(client):
    fs = client.fs
    with fs.open("/d/ä b+c.ss", "wb", blocksize=2**20) as file:
        file.write(b"x" * (2**20 + 5))
    with fs.open("/d/ä b+c.ss", "ab") as file:
        file.write(b"end")
    with fs.open("/d/ä b+c.ss", "rb") as file:
        file.seek(2**20 + 4)
        assert file.read() == b"xend"
    assert fs.walk("/") == ["d/ä b+c.ss"]
