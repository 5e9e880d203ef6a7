"""Faults, switches at run time, and kills of the emulator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import requests
from deltalake import DeltaTable

from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.emulator.execution import Outcome
from airflow_provider_scope.emulator.switches import Controls, Fault, Switches
from airflow_provider_scope.exceptions import InputError
from tests.emulator.conftest import Clock, Jobs, Recorder
from tests.emulator.test_instant import rows, script, write


def test_faults_with_a_probability_are_repeated_by_their_seed():
    def draw(seed):
        controls = Controls(Switches(seed=seed, faults=(Fault(kind="status", probability=0.5),)))
        return [bool(controls.request_faults("jobs", "get")) for _ in range(40)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert 5 < sum(draw(1)) < 35


def test_a_fault_lets_some_through_first_and_happens_so_often():
    controls = Controls(Switches(faults=(Fault(kind="status", op="get|list", skip=1, times=2),)))
    assert [len(controls.request_faults("jobs", "get")) for _ in range(5)] == [0, 1, 1, 0, 0]
    assert controls.request_faults("jobs", "submit") == []
    assert controls.counts() == {"fault.status": 2}


def test_latency_is_slept(recorded, jobs, monkeypatch):
    slept = []
    monkeypatch.setattr(recorded._server.answer, "_sleep", slept.append)
    recorded.set(faults=[{"kind": "latency", "op": "list", "seconds": 2.5}])
    assert jobs.list().status_code == 200
    assert slept == [2.5]


def test_a_job_can_be_made_to_fail_before_it_runs(recorded, jobs, executor):
    recorded.set(faults=[{"kind": "fail_job", "op": "^m_", "times": 1}])
    job = jobs.until(jobs.put(name="m_x").json()["jobId"])
    assert (job["result"], job["errorMessage"][0]["source"]) == ("Failed", "SYSTEM")
    assert executor.ran == []
    assert jobs.until(jobs.put(name="m_x").json()["jobId"])["result"] == "Succeeded"


def test_a_job_can_be_reported_as_failed_after_its_commit(emulator):
    write(emulator.account.root / "in/a.ss", 1)
    emulator.set(faults=[{"kind": "fail_after_commit"}])
    jobs = Jobs(emulator.url)
    job = jobs.until(jobs.put(script=script("/in/a.ss")).json()["jobId"])
    assert job["result"] == "Failed"
    assert rows(emulator.account.root) == [(1, "/in/a.ss")]


def test_a_job_that_is_cancelled_after_its_commit_is_cancelled_with_its_rows(emulator):
    write(emulator.account.root / "in/a.ss", 1)
    emulator.set(commit_at="start", state_seconds={"Running": 3600})
    jobs = Jobs(emulator.url)
    job_id = jobs.put(script=script("/in/a.ss")).json()["jobId"]
    table = emulator.account.root / "lake/tables/orders"
    while not (DeltaTable.is_deltatable(str(table)) and rows(emulator.account.root)):
        assert jobs.get(job_id).json()["state"] != "Ended"
    jobs.cancel(job_id)
    assert jobs.until(job_id)["result"] == "Cancelled"
    assert rows(emulator.account.root) == [(1, "/in/a.ss")]


def test_a_skewed_clock_shows_in_times_and_in_the_date(recorded, jobs):
    recorded.set(clock_skew_seconds=3600)
    answer = jobs.put()
    assert answer.json()["submitTime"] == "2027-01-15T01:00:00.0000000-08:00"
    assert answer.headers["Date"] == "Fri, 15 Jan 2027 09:00:00 GMT"


def test_an_executor_that_breaks_ends_the_job(start_emulator):
    class Broken(Recorder):
        def execute(self, task):
            raise RuntimeError("no space left")

    jobs = Jobs(start_emulator(executor=lambda _: Broken()).url)
    job = jobs.until(jobs.put().json()["jobId"])
    assert job["errorMessage"][0]["message"] == "RuntimeError: no space left"


def test_switches_are_read_and_set_over_http(emulator):
    address = f"{emulator.url}/_emulator"
    assert requests.get(f"{address}/switches", timeout=30).json()["page_size"] == 300
    answer = requests.put(
        f"{address}/switches", json={"page_size": 2, "faults": [{"kind": "drop_after"}]}, timeout=30
    )
    assert answer.json()["page_size"] == 2
    assert answer.json()["faults"][0]["kind"] == "drop_after"
    for wrong in (
        {"pagesize": 1},
        {"page_size": 0},
        {"page_size": "2"},
        {"auth": "x"},
        {"faults": [{}]},
        [1],
    ):
        assert requests.put(f"{address}/switches", json=wrong, timeout=30).status_code == 400, wrong
    assert requests.get(f"{address}/switches", timeout=30).json()["page_size"] == 2


def test_requests_and_answers_are_counted(emulator):
    jobs = Jobs(emulator.url)
    jobs.get(str(uuid.uuid4()))
    counts = requests.get(f"{emulator.url}/_emulator/counters", timeout=30).json()
    assert counts == {"answers.jobs.404": 1, "requests.jobs.get": 1}


@pytest.mark.parametrize(
    "values",
    [
        {"unknown": 1},
        {"seed": True},
        {"faults": [{"kind": "x"}]},
        {"faults": [{"kind": "status", "op": "("}]},
    ],
)
def test_a_switch_that_is_not_known_is_refused_at_the_start(tmp_path, values):
    with pytest.raises(InputError):
        Emulator(tmp_path, **values)


def test_one_directory_has_one_emulator(emulator):
    with pytest.raises(InputError, match="Another emulator"):
        Emulator(emulator.account.root).start()


def test_jobs_outlive_a_restart(start_emulator, tmp_path):
    clock = Clock()
    arguments = {"executor": lambda _: Recorder(), "clock": clock}
    first = start_emulator(**arguments, state_seconds={"Compiling": 60})
    jobs = Jobs(first.url)
    waiting = jobs.put(name="waiting", tags={"k": "v"}).json()["jobId"]
    before = jobs.get(waiting).json()
    first.stop()
    second = Jobs(start_emulator(**arguments, state_seconds={"Compiling": 60}).url)
    assert second.get(waiting).json() == before
    clock.advance(60)
    assert second.until(waiting)["result"] == "Succeeded"


@pytest.fixture
def serve(tmp_path):
    """Run the emulator in a process of its own."""
    running = []

    def serve(*switches):
        arguments = [item for switch in switches for item in ("--switch", switch)]
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow_provider_scope.emulator", "--root", tmp_path, *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process, Jobs(process.stdout.readline().strip())

    yield serve
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


HANG = """
import sys, time
from airflow_provider_scope.emulator import Emulator, InstantExecutor

class Hanging(InstantExecutor):
    def execute(self, task):
        if sys.argv[2] == "after":
            super().execute(task)
        print("reached", flush=True)
        time.sleep(600)

print(Emulator(sys.argv[1], executor=Hanging).start().url, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("restart", ["rerun", "fail"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_a_script_runs_never_doubles_its_rows(tmp_path, serve, moment, restart):
    write(tmp_path / "in/a.ss", 1)
    killed = subprocess.Popen(
        [sys.executable, "-c", HANG, tmp_path, moment], stdout=subprocess.PIPE, text=True
    )
    try:
        jobs = Jobs(killed.stdout.readline().strip())
        job_id = jobs.put(script=script("/in/a.ss")).json()["jobId"]
        assert killed.stdout.readline() == "reached\n"
    finally:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        killed.stdout.close()
    _, jobs = serve(f"restart={restart}")
    job = jobs.until(job_id)
    assert job["result"] == ("Succeeded" if restart == "rerun" else "Failed")
    details = [entry.get("details") for entry in job["stateAuditRecords"]]
    assert ("runAttempt:2" in details) == (restart == "rerun")
    committed = moment == "after" or restart == "rerun"
    assert DeltaTable.is_deltatable(str(tmp_path / "lake/tables/orders")) == committed
    if committed:
        assert rows(tmp_path) == [(1, "/in/a.ss")]


def test_the_command_prints_its_address_and_ends_on_a_signal(serve):
    process, jobs = serve("page_size=7", "auth=strict")
    assert requests.get(f"{jobs.url}/_emulator/switches", timeout=30).json()["page_size"] == 7
    assert jobs.list().status_code == 401
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0


def test_the_command_speaks_https_and_prints_what_to_trust(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "airflow_provider_scope.emulator", "--root", tmp_path, "--tls"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url, trust = (process.stdout.readline().strip() for _ in range(2))
        assert url.startswith("https://127.0.0.1:")
        assert trust == f"{tmp_path}/.emulator/tls/certificate.pem"
        assert Jobs(url, Path(trust)).list().status_code == 200
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--host", "0.0.0.0"],
        ["--host", "example.com"],
        ["--switch", "x=1"],
        ["--switch", "x"],
        ["--tls-cert", "c.pem"],
        ["--tls-key", "k.pem"],
        ["--tls", "--tls-cert", "c.pem", "--tls-key", "k.pem"],
        ["--tls-cert", "none.pem", "--tls-key", "none.pem"],
    ],
)
def test_the_command_refuses_what_is_wrong(tmp_path, capsys, arguments):
    from airflow_provider_scope.emulator.__main__ import main

    assert main(["--root", str(tmp_path), *arguments]) == 2
    assert capsys.readouterr().err


def test_the_outcome_of_a_script_that_was_cancelled_is_not_its_failure(recorded, jobs, executor):
    executor.outcome = Outcome("The job was cancelled.")
    recorded.set(state_seconds={"Finalizing": 3600})
    job_id = jobs.put().json()["jobId"]
    jobs.until(job_id, "Finalizing")
    jobs.cancel(job_id)
    recorded.set(state_seconds={})
    assert jobs.until(job_id)["result"] == "Cancelled"
