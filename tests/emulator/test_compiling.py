"""Scripts that cannot be compiled: the job ends in Compiling, and says where the error is."""

from __future__ import annotations

import pytest

from airflow_provider_scope.emulator.jobs_service import syntax_error
from tests.emulator.test_scripts import script

LATE = '#DECLARE @x string = "1";\r\nNONSENSE @y;'


def test_a_script_with_a_syntax_error_ends_while_it_compiles(recorded, jobs):
    job = jobs.until(jobs.put(script=LATE).json()["jobId"])
    assert (job["state"], job["result"]) == ("Ended", "Failed")
    assert [entry["newState"] for entry in job["stateAuditRecords"]] == ["New", "Compiling", "Ended"]
    assert job["stateAuditRecords"][-1]["details"] == "result:Failed"
    assert "startTime" not in job
    assert job["properties"]["errorSource"] == "UserError"
    assert "jobs.executed" not in recorded.counts()
    (error,) = job["errorMessage"]
    assert error == {
        "errorId": "E_CSC_USER_SYNTAXERROR",
        "name": "E_CSC_USER_SYNTAXERROR",
        "severity": "Error",
        "source": "USER",
        "component": "CSC",
        "message": "E_CSC_USER_SYNTAXERROR: unknown-statement at line 2, column 1: no supported statement "
        "starts with 'NONSENSE'",
        "description": "unknown-statement at line 2, column 1: no supported statement starts with 'NONSENSE'",
        "details": "",
        "resolution": "",
        "helpLink": "",
        "filePath": "",
        "lineNumber": 2,
        "innerError": None,
    }


def test_a_job_that_cannot_compile_compiles_as_long_as_any_other(recorded, jobs, clock):
    recorded.set(state_seconds={"Compiling": 60.0})
    job_id = jobs.put(script=LATE).json()["jobId"]
    assert jobs.get(job_id).json()["state"] == "Compiling"
    clock.advance(60)
    assert jobs.get(job_id).json()["result"] == "Failed"


def test_a_cancelled_job_is_cancelled_whatever_its_script(recorded, jobs):
    recorded.set(state_seconds={"Compiling": 60.0})
    job_id = jobs.put(script=LATE).json()["jobId"]
    jobs.cancel(job_id)
    job = jobs.get(job_id).json()
    assert (job["result"], job["errorMessage"][0]["errorId"]) == ("Cancelled", "I_USER_CJS_CANCELEDBYUSER")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (LATE, (2, 1), "NONSENSE"),
        (script("/a.ss", select="SELECT id, name uri FROM @data"), (8, 31), "'FROM', found 'uri'"),
        (
            script("/a.ss", select="SELECT id,\n  name\nFROM @data\n WHERE id = 1"),
            (11, 11),
            "a single = compares nothing",
        ),
        (
            script("/a.ss").replace("id, name, uri FROM @batch", "id name, uri FROM @batch"),
            (9, 31),
            "'FROM', found 'name'",
        ),
        # What may be right elsewhere is told when the script runs.
        (script("/a.ss", select="SELECT My.Code(nothing) AS id, name, uri FROM @none"), None, ""),
        (script("/a.ss"), None, ""),
    ],
    ids=["statement", "query", "condition", "insert", "names", "none"],
)
def test_an_error_has_its_place_in_the_whole_script(text, place, message):
    error = syntax_error(text)
    if place is None:
        assert error is None
        return
    line, column = place
    assert error["lineNumber"] == line
    assert error["message"].startswith("E_CSC_USER_SYNTAXERROR: ")
    assert f"at line {line}, column {column}: " in error["message"]
    assert message in error["message"]
