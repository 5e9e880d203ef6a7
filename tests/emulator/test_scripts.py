"""Scripts: on real Delta tables, and those that cannot be compiled."""

from __future__ import annotations

import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_scope.emulator.jobs import compile_error
from airflow_provider_scope.emulator.scripts import ScriptRunner
from airflow_provider_scope.exceptions import InputError
from tests.emulator.conftest import Jobs
from tests.emulator.scripts import LOCATION, rows, script, write


@pytest.fixture
def root(emulator):
    return emulator.account.root


@pytest.fixture
def run(emulator):
    jobs = Jobs(emulator.url)

    def run(text, name="m"):
        return jobs.until(jobs.put(name=name, script=text).json()["jobId"], seconds=120)

    return run


def test_a_script_appends_the_rows_of_its_files(root, run):
    write(root / "in/a.ss", 1, 2)
    assert run(script("/in/a.ss"))["result"] == "Succeeded"
    assert rows(root) == [(1, "/in/a.ss"), (2, "/in/a.ss")]
    (root / "in/b.ss").write_text("name,unused,id\n007,x,3\n,y,4\n")
    assert run(script("/in/b.ss"))["result"] == "Succeeded"
    assert rows(root) == [(1, "/in/a.ss"), (2, "/in/a.ss"), (3, "/in/b.ss"), (4, "/in/b.ss")]
    names = DeltaTable(root / "lake/tables/orders").to_pyarrow_table().sort_by("id")["name"].to_pylist()
    assert names == ["n", "n", "007", None]
    assert DeltaTable(root / "lake/tables/orders").metadata().configuration["owner"] == "us"


def test_texts_of_a_large_csv_file_may_have_line_ends(root, run):
    (root / "in").mkdir()
    (root / "in/a.ss").write_text("id,name\n" + f'1,"{"a" * 20}\n{"b" * 20}"\n' * 40_000)
    assert run(script("/in/a.ss"))["result"] == "Succeeded"
    names = DeltaTable(root / "lake/tables/orders").to_pyarrow_table()["name"]
    assert (len(names), names.unique().to_pylist()) == (40_000, [f"{'a' * 20}\n{'b' * 20}"])


def test_a_refresh_replaces_all_rows(root, run):
    write(root / "in/a.ss", 1)
    write(root / "in/b.ss", 2)
    run(script("/in/a.ss"))
    assert run(script("/in/b.ss", refresh=True))["result"] == "Succeeded"
    assert rows(root) == [(2, "/in/b.ss")]


def test_a_manifest_stands_for_the_units_in_the_folder_beside_it(root, run):
    (root / "in").mkdir()
    (root / "in/a.ss").write_bytes(b"manifest")
    write(root / "in/a/1.du", 1)
    write(root / "in/a/2.du", 2)
    (root / "in/empty.ss").write_bytes(b"")
    assert run(script("/in/a.ss", "adl://acct.azuredatalakestore.net/in/empty.ss"))["result"] == "Succeeded"
    assert rows(root) == [(1, "/in/a.ss"), (2, "/in/a.ss")]


def test_virtual_columns_tell_about_the_file(root, run):
    write(root / "in/a.ss", 1)
    os.utime(root / "in/a.ss", ns=(0, 1_700_000_000_123_456_789))
    text = (
        "CREATE TABLE IF NOT EXISTS @t (id long, size long?, made DateTime?, changed DateTime?)\n"
        f'LOCATION "{LOCATION}" OPTIONS (LAYOUT = DELTA);\n'
        "@d = EXTRACT id : long, size = FILE.LENGTH(), made = FILE.CREATED(), changed = FILE.MODIFIED()\n"
        'FROM "/in/a.ss" USING Extractors.SStream();\n'
        "INSERT INTO @t SELECT id, size, made, changed FROM @d;"
    )
    assert run(text)["result"] == "Succeeded"
    row = DeltaTable(root / "lake/tables/orders").to_pyarrow_table().to_pylist()[0]
    assert row["size"] == (root / "in/a.ss").stat().st_size
    assert row["made"] is None
    assert row["changed"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (script("/in/none.ss"), "Input stream /in/none.ss does not exist."),
        (
            script("/in/a.ss").replace("id : long", "id : long, other : string"),
            "/in/a.ss has no column other.",
        ),
        (script("/in/a.ss", select="SELECT id, nothing AS name, uri FROM @data"), "nothing is not a column"),
        (script("/in/a.ss", select="SELECT id, My.Code(name) AS name, uri FROM @data"), "My is not a column"),
        (script("/in/a.ss", select="SELECT id FROM @other"), "@other is not assigned above"),
        (script("/in/a.ss").replace("name : string", "name : text"), "'text' is not a SCOPE type"),
        (script("/in/null.ss"), "/in/null.ss: column id of type long cannot hold null."),
        (script("/in/text.ss"), "/in/text.ss cannot be read: "),
        (script("/in/a.ss", location="abfss://lake@acct.dfs.core.windows.net/../../x"), "not a path"),
        (script("/in/a.ss", location="file:///etc/x"), "outside of the account"),
        (script("/in/a.ss", location="https://x/y"), "not known to the emulator"),
        ("NONSENSE;", "E_CSC_USER_SYNTAXERROR"),
    ],
    ids=[
        *("file", "file column", "column", "code", "rowset", "type"),
        *("null", "csv", "up", "out", "scheme", "syntax"),
    ],
)
def test_a_script_that_cannot_run_fails_and_commits_nothing(root, run, text, message):
    write(root / "in/a.ss", 1)
    pq.write_table(pa.table({"id": pa.array([None], pa.int64()), "name": ["n"]}), root / "in/null.ss")
    (root / "in/text.ss").write_text("id,name\nx,1\n")
    job = run(text)
    assert job["result"] == "Failed"
    assert message in job["errorMessage"][0]["message"]
    assert job["errorMessage"][0]["source"] == "USER"
    assert not (root / "lake").exists() or rows(root) == []


def never():
    return False


def test_a_script_that_is_run_again_commits_nothing_twice(emulator, root):
    runner = ScriptRunner(emulator.account)
    write(root / "in/a.ss", 1)
    write(root / "in/b.ss", 2)
    refresh = script("/in/a.ss", refresh=True)
    runner.execute("1", refresh, never)
    runner.execute("2", script("/in/b.ss"), never)
    version = DeltaTable(root / "lake/tables/orders").version()
    runner.execute("1", refresh, never)
    assert rows(root) == [(1, "/in/a.ss"), (2, "/in/b.ss")]
    table = DeltaTable(root / "lake/tables/orders")
    assert table.version() == version
    assert table.transaction_version("scope-job-1") == 9
    named = [entry.get("userMetadata") for entry in table.history() if entry["operation"] == "WRITE"]
    assert named == ['{"scopeJobId": "2"}', '{"scopeJobId": "1"}']


def test_a_job_that_is_cancelled_while_it_runs_commits_nothing_more(emulator, root):
    write(root / "in/a.ss", 1)
    answers = iter([False, True])
    with pytest.raises(InputError, match="The job was cancelled"):
        ScriptRunner(emulator.account).execute("x", script("/in/a.ss"), lambda: next(answers, True))
    assert not (root / "lake").exists()


def test_paths_below_the_root_are_taken_as_they_are(emulator, root, run):
    write(root / "in/a.ss", 1)
    text = script(root / "in/a.ss", location=f"file://{root}/lake/tables/orders")
    assert run(text)["result"] == "Succeeded"
    assert rows(root) == [(1, f"{root}/in/a.ss")]


def test_jobs_on_one_table_do_not_disturb_each_other(emulator, root):
    jobs = Jobs(emulator.url)
    ids = []
    for number in range(8):
        write(root / f"in/{number}.ss", number)
        ids.append(jobs.put(script=script(f"/in/{number}.ss")).json()["jobId"])
    assert {jobs.until(one)["result"] for one in ids} == {"Succeeded"}
    assert [number for number, _ in rows(root)] == list(range(8))
    assert emulator.counts()["jobs.executed"] == 8


def test_a_table_that_was_deleted_is_made_again(root, run):
    write(root / "in/a.ss", 1)
    write(root / "in/b.ss", 2)
    assert run(script("/in/a.ss"))["result"] == "Succeeded"
    shutil.rmtree(root / "lake")
    assert run(script("/in/b.ss"))["result"] == "Succeeded"
    assert rows(root) == [(2, "/in/b.ss")]


SAME_TYPES = (
    'CREATE TABLE IF NOT EXISTS @t (a string, b string, n long?) LOCATION "{location}" '
    "OPTIONS (LAYOUT = DELTA);\n"
    '@d = EXTRACT id : long, name : string, uri = FILE.URI() FROM "/in/a.ss" USING Extractors.SStream();\n'
    "INSERT INTO @t {insert} FROM @d;"
).replace("{location}", LOCATION)


@pytest.mark.parametrize(
    ("insert", "row"),
    [
        ("SELECT name AS b, uri AS a, id AS n", {"a": "n", "b": "/in/a.ss", "n": 1}),
        ("(b, a, n) SELECT name AS b, uri AS a, id AS n", {"a": "/in/a.ss", "b": "n", "n": 1}),
        ("(n, b, a) SELECT id, name, uri", {"a": "/in/a.ss", "b": "n", "n": 1}),
        ("(b) SELECT name", {"a": None, "b": "n", "n": None}),
    ],
    ids=["by position", "by list", "other names", "some columns"],
)
def test_an_insertion_goes_by_its_list_or_else_by_position(root, run, insert, row):
    write(root / "in/a.ss", 1)
    job = run(SAME_TYPES.replace("{insert}", insert))
    assert job.get("errorMessage") is None
    assert DeltaTable(root / "lake/tables/orders").to_pyarrow_table().to_pylist() == [row]


@pytest.mark.parametrize(
    ("insert", "message"),
    [
        ("SELECT name, uri", "INSERT takes 3 columns, a, b, n, and its SELECT gives 2."),
        ("(a, b) SELECT name", "INSERT takes 2 columns, a, b, and its SELECT gives 1."),
        ("(a, c) SELECT name, uri", "The table has no column c."),
    ],
)
def test_an_insertion_whose_columns_do_not_match_is_refused(root, run, insert, message):
    write(root / "in/a.ss", 1)
    assert message in run(SAME_TYPES.replace("{insert}", insert))["errorMessage"][0]["message"]


@pytest.mark.parametrize(
    ("extract", "insert", "message"),
    [
        ("name : string", "(n) SELECT name", "INSERT: n is of type int64, and not string."),
        ("id : long", "(a) SELECT id", "INSERT: a is of type string, and not int64."),
        ("at : DateTime", "(a) SELECT at", "INSERT: a is of type string, and not timestamp[us, tz=UTC]."),
        ("id : string", "(a) SELECT id", "/in/a.ss: id is of type string, and not int64."),
    ],
)
def test_text_numbers_and_times_do_not_become_each_other(root, run, extract, insert, message):
    (root / "in").mkdir()
    moment = pa.array([0], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"id": [7], "name": ["007"], "at": moment}), root / "in/a.ss")
    text = SAME_TYPES.replace("{insert}", insert)
    text = text.replace("id : long, name : string, uri = FILE.URI()", extract)

    job = run(text)

    assert message in job["errorMessage"][0]["message"]
    assert DeltaTable(root / "lake/tables/orders").to_pyarrow_table().num_rows == 0


def test_a_column_that_an_insertion_leaves_out_is_null_only_if_it_may_be(root, run):
    write(root / "in/a.ss", 1)
    text = SAME_TYPES.replace("long?", "long").replace("{insert}", "(a) SELECT name")
    assert "INSERT: column n of type long cannot hold null." in run(text)["errorMessage"][0]["message"]


def test_a_column_is_added_once(emulator, root):
    write(root / "in/a.ss", 1)
    runner = ScriptRunner(emulator.account)
    made = SAME_TYPES.replace("{insert}", "SELECT name, uri, id")
    altered = made.replace(
        "@d =", "ALTER TABLE @t ADD COLUMN IF NOT EXISTS c SQL.ARRAY<int?>;\n@d ="
    ).replace("INSERT INTO @t SELECT", "INSERT INTO @t (a, b, n) SELECT")

    for number, text in enumerate((made, altered, altered)):
        runner.execute(str(number), text, never)
    table = DeltaTable(root / "lake/tables/orders")
    assert [field.name for field in table.schema().fields] == ["a", "b", "n", "c"]
    assert [entry["operation"] for entry in table.history()].count("ADD COLUMN") == 1
    assert table.to_pyarrow_table()["c"].to_pylist() == [None] * 3


def test_commits_of_others_between_two_jobs_are_seen(root, run):
    write(root / "in/a.ss", 1)
    run(script("/in/a.ss"))
    DeltaTable(root / "lake/tables/orders").delete()
    write(root / "in/b.ss", 2)
    assert run(script("/in/b.ss"))["result"] == "Succeeded"
    assert rows(root) == [(2, "/in/b.ss")]


NESTED = (
    "CREATE TABLE IF NOT EXISTS @t\n"
    "(id long, tags SQL.ARRAY<string>, counts SQL.MAP<string, SQL.ARRAY<int?>>)\n"
    f'LOCATION "{LOCATION}" OPTIONS (LAYOUT = DELTA);\n'
    "@d = EXTRACT id : long, tags : SqlArray<string>, counts : SqlMap<string, SqlArray<int?>>\n"
    'FROM "/in/a.ss" USING Extractors.SStream();\n'
    "@b = SELECT id, tags, counts FROM @d;\n"
    "INSERT INTO @t SELECT id, tags, counts FROM @b;"
)


def write_nested(root):
    (root / "in").mkdir(exist_ok=True)
    kind = pa.map_(pa.string(), pa.list_(pa.int32()))
    counts = pa.array([[("a", [1, None])], None], kind)
    pq.write_table(pa.table({"id": [1, 2], "tags": [["x", None], []], "counts": counts}), root / "in/a.ss")


def test_arrays_and_maps_come_through(root, run):
    write_nested(root)
    job = run(NESTED)
    assert job.get("errorMessage") is None
    assert DeltaTable(root / "lake/tables/orders").to_pyarrow_table().sort_by("id").to_pylist() == [
        {"id": 1, "tags": ["x", None], "counts": [("a", [1, None])]},
        {"id": 2, "tags": [], "counts": None},
    ]


def test_a_query_computes_and_filters(root, run):
    write(root / "in/a b%20.ss", 1, 2, 3)
    (root / "in/b.ss").write_text("name,id\nx,4\n")
    select = "SELECT (id + 10L) AS id, name, uri FROM @data WHERE id != 2 && modified > DateTime.MinValue"
    job = run(script("/in/a b%20.ss", "/in/b.ss", select=select))
    assert job.get("errorMessage") is None
    assert rows(root) == [(11, "/in/a b%20.ss"), (13, "/in/a b%20.ss"), (14, "/in/b.ss")]


def test_a_query_that_fails_on_a_row_fails_the_job(root, run):
    write(root / "in/a.ss", 1)
    job = run(script("/in/a.ss", select="SELECT id, name.Split(',')[7] AS name, uri FROM @data"))
    assert "[7] is outside of the 1 parts of Split" in job["errorMessage"][0]["message"]
    assert rows(root) == []


LATE = '#DECLARE @x string = "1";\r\nNONSENSE @y;'


def test_a_script_with_a_syntax_error_ends_while_it_compiles(recorded, jobs):
    job = jobs.until(jobs.put(script=LATE).json()["jobId"])
    assert (job["state"], job["result"]) == ("Ended", "Failed")
    assert [entry["newState"] for entry in job["stateAuditRecords"]] == ["New", "Compiling", "Ended"]
    assert job["stateAuditRecords"][-1]["details"] == "result:Failed"
    assert "startTime" not in job
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
        "resolution": "use #DECLARE, @rows = …, or one that starts with SET, CREATE, ALTER, DECLARE, DELETE, "
        "INSERT",
        "helpLink": "",
        "filePath": "",
        "lineNumber": 2,
        "innerError": None,
    }


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
        (script("/a.ss", select="SELECT id,\n  nothing AS name, uri FROM @data"), (9, 3), "not a column"),
        (script("/a.ss"), None, ""),
    ],
    ids=["statement", "query", "condition", "insert", "names", "none"],
)
def test_an_error_has_its_place_in_the_whole_script(text, place, message):
    error = compile_error(text)
    if place is None:
        assert error is None
        return
    line, column = place
    assert error["lineNumber"] == line
    assert error["message"].startswith("E_CSC_USER_SYNTAXERROR: ")
    assert f"at line {line}, column {column}: " in error["message"]
    assert message in error["message"]
