"""Faults, switches at run time, and kills of the emulator."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import uuid

import pytest

from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.emulator.scripts import ScriptRunner
from airflow_provider_scope.emulator.switches import Controls, Fault
from airflow_provider_scope.exceptions import InputError
from tests.emulator.conftest import MISSING, Clock, Jobs
from tests.emulator.scripts import rows, script, write


def test_faults_with_a_probability_are_repeated_by_their_seed():
    def draw(seed):
        controls = Controls(seed=seed, faults=(Fault(kind="status", probability=0.5),))
        return [bool(controls.request_faults("jobs", "get")) for _ in range(40)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert 5 < sum(draw(1)) < 35


def test_a_fault_lets_some_through_first_and_happens_so_often():
    controls = Controls(faults=(Fault(kind="status", op="get|list", skip=1, times=2),))
    assert [len(controls.request_faults("jobs", "get")) for _ in range(5)] == [0, 1, 1, 0, 0]
    assert controls.request_faults("jobs", "submit") == []
    assert controls.counts() == {"fault.status": 2}


def test_a_fault_of_the_emulator_ends_the_job(emulator):
    (emulator.account.root / "lake").write_bytes(b"a file where the folder of the table should be")
    jobs = Jobs(emulator.url)
    (error,) = jobs.until(jobs.put(script=script("/in/a.ss")).json()["jobId"])["errorMessage"]
    assert error["source"] == "SYSTEM"
    assert error["message"].startswith("TableNotFoundError: ")


def test_requests_and_answers_are_counted(emulator):
    jobs = Jobs(emulator.url)
    jobs.get(str(uuid.uuid4()))
    assert emulator.counts() == {"answers.jobs.404": 1, "requests.jobs.get": 1}


@pytest.mark.parametrize(
    "values",
    [
        {"unknown": 1},
        {"seed": True},
        {"page_size": 0},
        {"duplicate_put": "x"},
        {"state_seconds": 12},
        {"faults": [{}]},
        {"faults": [{"kind": "drop_after", "operation": "x"}]},
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


def test_jobs_outlive_a_restart(start_emulator):
    clock = Clock()
    first = start_emulator(clock=clock, state_seconds={"Compiling": 60})
    jobs = Jobs(first.url)
    ended = jobs.put(name="ended").json()["jobId"]
    clock.advance(60)
    jobs.until(ended)
    waiting = jobs.put(name="waiting", tags={"k": "v"}).json()["jobId"]
    before = [jobs.get(job_id).json() for job_id in (ended, waiting)]
    first.stop()
    clock.advance(1)
    second = Jobs(start_emulator(clock=clock, state_seconds={"Compiling": 60}).url)
    assert [second.get(job_id).json() for job_id in (ended, waiting)] == before
    clock.advance(60)
    assert second.until(waiting)["result"] == "Succeeded"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_script_that_runs_while_the_emulator_is_killed_is_run_again_and_never_doubles_its_rows(
    start_emulator, tmp_path, monkeypatch, moment
):
    """A kill leaves what is on the disk; here, a copy of it."""
    reached, go_on = threading.Event(), threading.Event()
    execute = ScriptRunner.execute

    def hang(*arguments, **options):
        if moment == "after":
            execute(*arguments, **options)
        reached.set()
        go_on.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr(ScriptRunner, "execute", hang)
        running = start_emulator()
        write(running.account.root / "in/a.ss", 1)
        job_id = Jobs(running.url).put(script=script("/in/a.ss")).json()["jobId"]
        assert reached.wait(60)
        root = shutil.copytree(running.account.root, tmp_path / "copy")
    go_on.set()

    job = Jobs(start_emulator(root).url).until(job_id)

    assert job["result"] == "Succeeded"
    assert "runAttempt:2" in [entry.get("details") for entry in job["stateAuditRecords"]]
    assert rows(root) == [(1, "/in/a.ss")]


def test_the_command_prints_its_address_and_ends_on_a_signal(tmp_path):
    fault = 'faults=[{"kind": "status", "op": "list", "times": 1}]'
    command = [sys.executable, "-m", "airflow_provider_scope.emulator", "--root", tmp_path]
    command += ["--switch", fault, "--switch", "page-size=1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        jobs = Jobs(url)
        assert url.startswith("http://127.0.0.1:")
        assert jobs.list().status_code == 503
        assert jobs.list().json() == {"value": []}
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--switch", "x=1"],
        ["--switch", "x"],
        ["--switch", "page_size=x"],
    ],
)
def test_the_command_refuses_what_is_wrong(tmp_path, capsys, arguments):
    from airflow_provider_scope.emulator.__main__ import main

    assert main(["--root", str(tmp_path), *arguments]) == 2
    assert capsys.readouterr().err


def test_the_outcome_of_a_script_that_was_cancelled_is_not_its_failure(recorded, jobs):
    recorded.set(state_seconds={"Finalizing": 3600})
    job_id = jobs.put(script=MISSING).json()["jobId"]
    jobs.until(job_id, "Finalizing")
    jobs.cancel(job_id)
    recorded.set(state_seconds={})
    assert jobs.until(job_id)["result"] == "Cancelled"
