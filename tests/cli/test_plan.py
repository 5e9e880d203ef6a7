"""What ``airflow scope plan`` tells about the next run of a task in a Dag file."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import BadRecordError
from tests.crash.world import NOW_MS
from tests.support.dbt_scope import DbtScope
from tests.support.delta_engine import SOURCE

if TYPE_CHECKING:
    from tests.cli.conftest import Desk


def planned(desk: Desk, task_id: str = "ingest", *words: str, dag_id: str = "planned") -> Any:
    return desk.reads("plan", dag_id, task_id, *words)


def test_a_first_run_would_load_everything(desk, dag_file):
    dag_file()
    desk.world.drop("a.parquet", 60)
    desk.world.drop("b.parquet", 50)

    said = planned(desk)

    assert said.code == 0
    assert said.out == (
        "new: 2 batches, 2 files\n"
        f"  0: append, 1 file, {desk.size('a.parquet')}: file:///landing/a.parquet\n"
        f"  1: append, 1 file, {desk.size('b.parquet')}: file:///landing/b.parquet\n"
        "nothing was written\n"
    )


def test_a_dag_file_may_import_a_module_beside_it_and_one_that_does_not_exist_is_an_error(
    desk, dag_file, in_dags
):
    in_dags("beside_it.py", "PART = 'landing'\n")
    dag_file("__import__('beside_it').PART")
    desk.world.drop("a.parquet", 60)

    assert planned(desk).out.startswith("new: 1 batch, 1 file\n")
    assert planned(desk, dag_id="other").err.startswith("InputError: There is no Dag other: no bundle has it")


def test_open_batches_come_before_new_ones_and_what_is_left_out_is_named_with_its_reason(desk, dag_file):
    dag_file(max_batches_per_run="1")
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)
    for number in range(3):
        desk.world.drop(f"c{number}.parquet", 60)
    desk.world.drop("young.parquet", -3_595)
    desk.world.drop("_hidden.parquet", 60)
    desk.world.show("b.parquet")

    said = planned(desk)

    assert said.out == (
        "open, run first: 1 batch, 1 file\n"
        f"  1: append, 1 file, {desk.size('b.parquet')}: file:///landing/b.parquet\n"
        "new: 1 batch, 1 file\n"
        f"  2: append, 1 file, {desk.size('c0.parquet')}: file:///landing/c0.parquet\n"
        "not loaded: 1 file hidden name\n"
        "  file:///landing/_hidden.parquet\n"
        "not loaded: 1 file too young (taken from 2023-11-14T23:13:45Z on)\n"
        "  file:///landing/young.parquet\n"
        "left for the run after it (max_batches_per_run): 2 files\n"
        "nothing was written\n"
    )


@pytest.mark.parametrize(
    ("damage", "error", "what"),
    [
        (None, "SourceFileGoneError", "is missing"),
        (("b.parquet", 1_700), "SourceFileChangedError", "is there, but it has changed since it was logged"),
    ],
    ids=["missing", "repaired in place"],
)
def test_a_logged_file_that_is_not_as_it_was_blocks_what_is_behind_it(desk, dag_file, damage, error, what):
    dag_file()
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)
    size = (desk.world.folder / "b.parquet").stat().st_size
    if damage:
        desk.world.drop(*damage)
    desk.world.drop("c.parquet", 60)

    said = planned(desk)

    assert said.code == 1
    assert said.out.startswith(
        "not loaded, because the run fails: 2 batches, 2 files\n"
        f"  1: append, 1 file, {size:,} bytes: file:///landing/b.parquet\n"
        f"  2: append, 1 file, {desk.size('c.parquet')}: file:///landing/c.parquet\n"
    )
    assert ("not loaded: 1 file changed after it was logged\n" in said.out) == bool(damage)
    assert said.err.startswith(f"{error}: The file file:///landing/b.parquet of batch 1 {what}")
    assert "`airflow scope abandon /table 1`" in said.err


def test_an_open_batch_below_a_root_of_before_has_the_whole_command(desk, dag_file):
    dag_file(source="'new landing'")
    (desk.world.folder / "new landing").mkdir()
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)

    said = planned(desk)

    assert said.err.startswith("CheckpointCorruptError: Batch 1 of file:///table/_checkpoint names file:///")
    assert "`airflow scope abandon /table 1`: the next run loads" in said.err


def test_what_an_open_batch_holds_that_does_not_fit_has_the_whole_command(desk, dag_file, monkeypatch):
    dag_file()
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)
    desk.world.show("b.parquet")
    error = BadRecordError("what", do="repair the file, and run `airflow scope abandon`")
    monkeypatch.setattr(assembly, "rehearse", lambda *_: assembly.Findings((error,), (), (), None))

    said = planned(desk, "ingest", "--read")

    assert said.err.endswith("run `airflow scope abandon /table 1`\n")


def test_nothing_new_says_why(desk, dag_file):
    dag_file()
    desk.loaded("a.parquet")

    said = planned(desk)

    assert said.out == (
        "0 new files: the newest of 1 files in file:///landing is a.parquet (2023-11-14T21:13:20Z); "
        "1 were loaded before\n"
        "nothing was written\n"
    )


def test_a_full_refresh_supersedes_the_open_batches(desk, dag_file):
    dag_file(full_refresh="True")
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)

    said = planned(desk)

    desk.world.show("b.parquet")
    assert said.out == (
        "superseded by the full refresh, never run: 1 batch, 1 file\n"
        f"  1: append, 1 file, {desk.size('b.parquet')}: file:///landing/b.parquet\n"
        "new: 1 batch, 1 file\n"
        f"  2: overwrite, 1 file, {desk.size('a.parquet')}: file:///landing/a.parquet\n"
        "nothing was written\n"
    )


def test_a_full_refresh_can_be_asked_for_and_names_the_loaded_files_that_are_gone(desk, dag_file):
    dag_file()
    desk.loaded("a.parquet", "b.parquet")
    desk.world.hide("a.parquet")

    said = planned(desk, "ingest", "--full-refresh")

    warning = (
        "Loaded files that the source no longer has, or that are left out of it: 1 of 2. Their rows are not "
        "in the new table. Version 1 of the table has them until VACUUM deletes its files: read it with "
        "VERSION AS OF 1, or RESTORE the table to it. The files: file:///landing/a.parquet"
    )
    assert said.code == 0
    assert said.out == (
        "new: 1 batch, 1 file\n"
        f"  2: overwrite, 1 file, {desk.size('b.parquet')}: file:///landing/b.parquet\n"
        f"warning: {warning}\n"
        "nothing was written\n"
    )
    facts = json.loads(planned(desk, "ingest", "--full-refresh", "-o", "json").out)
    assert (facts["warnings"], len(facts["new"])) == ([warning], 1)
    assert "warning" not in planned(desk).out
    dag_file(full_refresh="'{{ params.full }}'")
    assert warning in planned(desk, "ingest", "--full-refresh").out


def test_a_full_refresh_of_a_task_that_cannot_have_one_is_refused(desk, dag_file):
    dag_file(write="{'kind': 'replace', 'where': 'day = 1'}")
    desk.world.drop("a.parquet", 60)

    said = planned(desk, "ingest", "--full-refresh")

    assert (said.code, said.out) == (1, "")
    assert "full_refresh=True is not valid: expected False with Replace(where=...)." in said.err


def test_a_source_that_does_not_exist_is_an_error(desk, dag_file):
    dag_file(source='"nowhere"')

    said = planned(desk)

    assert said.code == 1
    assert "SourceNotFoundError: The source folder file:///nowhere does not exist.\n" in said.err


def test_a_task_of_another_operator_is_refused(desk, dag_file):
    dag_file()

    said = planned(desk, "folder")

    assert said.code == 1
    assert said.err.endswith(
        "InputError: The task planned.folder is a _PythonDecoratedOperator.\n"
        "Kept: everything; nothing was read or written\n"
        "What to do: name a task that is a DeltaIncrementalIngestOperator; `airflow scope list` shows them\n"
    )


@pytest.mark.parametrize("index", [0, 1])
def test_an_instance_of_a_mapped_task_is_planned(desk, dag_file, index):
    dag_file()
    desk.world.drop("a.parquet", 60)

    said = planned(desk, "mapped", "--map-index", str(index), "-o", "json")

    facts = json.loads(said.out)
    assert (said.code, facts["table"]) == (0, f"file:///{['one', 'two'][index]}")
    assert [batch["files"] for batch in facts["new"]] == [["file:///landing/a.parquet"]]


GROUP = """
from airflow.sdk import task_group

with dag:

    @task_group
    def group(name):
        DeltaIncrementalIngestOperator(
            task_id="load",
            delta_location=name,
            source=FileSource(roots="{folder}/landing", format="parquet"),
        )

    group.expand(name=["{folder}/three", "{folder}/four"])
"""


def test_an_instance_of_a_task_in_a_mapped_group_is_planned_and_listed(desk, dag_file):
    dag_file(more=GROUP.format(folder=desk.world.folder))
    desk.world.drop("a.parquet", 60)

    said = [planned(desk, "group.load", "--map-index", str(index), "-o", "json") for index in (0, 1)]
    refused = planned(desk, "group.load")
    rows = {
        (row["task_id"], row["map_index"]): row for row in json.loads(desk.reads("list", "-o", "json").out)
    }

    assert [json.loads(one.out)["table"] for one in said] == ["file:///three", "file:///four"]
    assert "is mapped to 2 instances" in refused.err
    assert rows["group.load", "1"]["table"] == "file:///four"
    assert rows["ingest", None]["state"] == "not begun"


def test_the_params_of_a_task_go_before_those_of_its_dag_as_in_a_run(desk, dag_file):
    dag_file(params='{"part": "elsewhere"}')
    desk.world.drop("a.parquet", 60)

    said = planned(desk, "ingest")

    assert (said.code, said.out) == (1, "")
    assert "file:///elsewhere" in said.err


@pytest.mark.parametrize(
    ("task_id", "index", "what"),
    [
        ("mapped", -1, "is mapped to 2 instances, and --map-index=-1 is none of them"),
        ("mapped", 2, "is mapped to 2 instances, and --map-index=2 is none of them"),
        ("ingest", 0, "is not mapped, but has --map-index=0"),
        ("mapped_late", 0, "needs a result of another task (XComArg), over which it is mapped"),
    ],
)
def test_an_instance_that_is_not_there_or_not_known_is_refused(desk, dag_file, task_id, index, what):
    dag_file()

    said = planned(desk, task_id, "--map-index", str(index))

    assert (said.code, said.out) == (1, "")
    assert what in said.err


def test_the_json_of_a_plan_is_one_object_with_all_that_the_run_does_and_its_error(desk, dag_file):
    dag_file()
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)
    desk.world.drop("_hidden.parquet", 60)

    said = planned(desk, "ingest", "--output", "json")

    facts = json.loads(said.out)
    error = facts.pop("error")
    assert said.code == 1
    assert (error["type"], sorted(error)) == ("SourceFileGoneError", ["do", "kept", "type", "what"])
    assert facts == {
        "table": "file:///table",
        "checkpoint": "file:///table/_checkpoint",
        "recorded": [],
        "superseded": [],
        "open": [],
        "new": [],
        "blocked": [
            {
                "batch": 1,
                "mode": "append",
                "where": None,
                "reads": "file:///landing/b.parquet",
                "files": ["file:///landing/b.parquet"],
                "bytes": (desk.world.folder / "b.parquet").stat().st_size,
            }
        ],
        "is_complete": True,
        "left_out": {"hidden name": 1},
        "pending_files": 0,
        "lag": None,
        "warnings": [],
    }


def test_a_feed_whose_next_batch_does_not_fit_the_target_is_refused(desk, dag_file):
    orders, target = (str(desk.world.folder / name) for name in ("orders", "target"))
    rows = pa.table({"id": [1], "day": [1]}, schema=SOURCE)
    write_deltalake(orders, rows, configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(target, rows.select(["id"]).slice(0, 0))
    dag_file(
        more="    from airflow_provider_scope.specs import CdfSource\n"
        "    write = {'kind': 'merge', 'strategy': 'upsert', 'primary_key': 'id'}\n"
        f"    of_feed = dict(source=CdfSource(table={orders!r}), write=write)\n"
        f"    DeltaIncrementalIngestOperator(task_id='other', delta_location={target!r}, **of_feed)\n"
        f"    DeltaIncrementalIngestOperator(task_id='fits', delta_location={target + '2'!r}, **of_feed)\n"
    )

    said = planned(desk, "other")

    assert said.code == 1
    assert said.out.startswith("not loaded, because the run fails: 1 batch\n")
    assert said.err.startswith(
        "SchemaMismatchError: The SELECT does not fit the table file:///target: day bigint is not a column"
    )
    assert planned(desk, "fits").out.startswith("new: 1 batch\n")


def test_a_task_without_intervals_has_no_plan_of_one(desk, dag_file):
    dag_file()
    desk.world.drop("a.parquet", 60)

    said = planned(desk, "ingest", "--interval", "20260101T000000000Z_20260102T000000000Z")

    assert (said.code, said.out) == (1, "")
    assert "The task planned.ingest loads no intervals, but has --interval=20260101T" in said.err


def test_list_shows_the_pipelines_of_all_dags(desk, dag_file):
    dag_file()
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)

    said = desk.reads("list", "-o", "json")

    rows = {(row["task_id"], row["map_index"]): row for row in json.loads(said.out)}
    assert said.code == 0
    ingest = rows["ingest", None]
    assert (ingest["dag_id"], ingest["table"], ingest["state"]) == ("planned", "file:///table", "open")
    assert (ingest["open"], ingest["committed"][:7], ingest["error"]) == (["1"], "batch 0", None)
    assert rows["mapped", "0"]["table"] == "file:///one"
    assert rows["mapped", "1"]["state"] == "not begun"
    assert rows["mapped_late", None]["state"] == "unknown"
    assert "XComArg" in rows["mapped_late", None]["error"]


@pytest.mark.parametrize("words", [["list"], ["plan", "planned", "ingest"]], ids=lambda words: words[0])
def test_a_bundle_that_does_not_exist_is_named(desk, dag_file, words):
    dag_file()

    said = desk.reads(*words, "--bundle-name", "nobodys")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("InputError: There is no Dag bundle nobodys.\n")


def test_list_shows_why_the_next_run_is_refused(desk, dag_file):
    dag_file()
    desk.loaded("a.parquet", "b.parquet")
    desk.world.restore(0)

    rows = {row["task_id"]: row for row in desk.listed()}

    assert rows["ingest"]["state"] == "refused"
    assert rows["ingest"]["error"].startswith("TableRestoredError: The table file:///table was restored")


def test_list_knows_a_table_of_dbt_scope_that_the_first_run_takes_over(desk, dag_file):
    dag_file()
    desk.loaded("a.parquet")
    (desk.world.folder / "table/_checkpoint").rename(desk.world.folder / "away")
    theirs = DbtScope(desk.world.storage, desk.world.checkpoint)
    theirs.loaded([(f"{desk.world.folder}/landing/a.parquet", NOW_MS - 60_000)])

    rows = {row["task_id"]: row for row in desk.listed()}

    assert (rows["ingest"]["state"], rows["ingest"]["error"]) == ("not begun", None)


def test_list_says_that_a_checkpoint_which_was_lost_is_refused(desk, dag_file):
    dag_file()
    desk.loaded("a.parquet")
    (desk.world.folder / "table/_checkpoint").rename(desk.world.folder / "away")

    def state() -> tuple[str, str | None]:
        row = next(row for row in desk.listed() if row["task_id"] == "ingest")
        return row["state"], row["error"] and row["error"].partition(",")[0]

    assert state() == ("refused", "UnknownRowsError: The table file:///table holds rows")
    for allowed in ({"first_run": "'add'"}, {"full_refresh": "True"}):
        dag_file(**allowed)
        assert state() == ("not begun", None)
    dag_file()
    (desk.world.folder / "table").rename(desk.world.folder / "gone")
    assert state() == ("not begun", None)


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ({"sql_params": "{'a': folder()}"}, "a result of another task (XComArg)"),
        ({"sql_params": "folder()"}, "a result of another task (XComArg)"),
        (
            {"sql": "\"SELECT id, '{{ ds }}' AS d FROM @data\""},
            "a value that only a run knows ('ds' is undefined)",
        ),
    ],
)
def test_a_value_that_only_a_run_knows_is_named(desk, dag_file, arguments, needs):
    dag_file(**arguments)
    desk.world.drop("a.parquet", 60)

    said = planned(desk)

    assert (said.code, said.out) == (1, "")
    assert said.err.endswith(
        f"InputError: An argument of the task planned.ingest needs {needs}.\n"
        "Kept: everything; nothing was read or written\n"
        "What to do: a command knows only `params`, `dag` and `task`; look at a run's log\n"
    )


@pytest.mark.parametrize(("dag_id", "task_id"), [("nobodys", "ingest"), ("planned", "nobodys")])
def test_a_dag_or_task_that_does_not_exist_is_said_in_a_line(desk, dag_file, dag_id, task_id):
    dag_file()

    said = planned(desk, task_id, dag_id=dag_id)

    assert (said.code, said.out) == (1, "")
    assert "nobodys" in said.err.splitlines()[-1]
    assert "Traceback" not in said.err


def test_a_param_without_a_default_is_a_value_that_only_a_run_knows(desk, dag_file):
    params = "{'needed': __import__('airflow.sdk').sdk.Param(type='string'), 'empty': None}"
    desk.world.drop("a.parquet", 60)

    dag_file('"{{ params.needed }}"', params=params)
    needed = planned(desk)
    dag_file("\"{{ params.empty or 'landing' }}\"", params=params)
    empty = planned(desk)

    assert (needed.code, needed.out) == (1, "")
    assert "needs a value that only a run knows ('dict object' has no attribute 'needed')" in needed.err
    assert (empty.code, empty.err) == (0, "")


def test_a_task_that_is_mapped_over_nothing_has_no_instance_to_name(desk, dag_file):
    dag_file(
        more="    DeltaIncrementalIngestOperator.partial(\n"
        "        task_id='over_nothing', source=FileSource(roots='/in', format='parquet')\n"
        "    ).expand(delta_location=[])\n"
    )

    said = planned(desk, "over_nothing")

    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("What to do: nothing: a run of it loads nothing\n")


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{{ 1 / params.full }}", "ZeroDivisionError: division by zero"),
        ("{{ params.part + 1 }}", 'TypeError: can only concatenate str (not "int") to str'),
    ],
)
def test_a_template_that_fails_is_an_error_of_its_task_alone(desk, dag_file, template, error):
    dag_file(f'"{template}"')

    said = planned(desk)
    rows = {row["task_id"]: row for row in desk.listed()}

    message = f"InputError: A template in an argument of the task planned.ingest fails with {error}."
    assert (said.code, said.out, said.err.splitlines()[-3]) == (1, "", message)
    assert (rows["ingest"]["state"], rows["ingest"]["error"]) == ("unknown", message)
    assert rows["mapped"]["state"] == "not begun"


@pytest.mark.parametrize("output", ["table", "plain", "json", "yaml"])
@pytest.mark.parametrize("name", ["[raw]", "[/raw]", "[bold]x"])
def test_a_path_with_brackets_is_shown_as_it_is(desk, dag_file, name, output):
    dag_file(checkpoint=f"{{'location': '/data/{name}'}}")

    said = desk.scope("list", "-o", output)

    assert (said.code, f"file:///data/{name}" in said.out) == (0, True)


def test_a_sql_file_is_found_beside_the_dag(desk, dag_file, in_dags):
    dag_file(sql='"planned.sql"')
    in_dags("planned.sql", "SELECT " + ", ".join(SOURCE.names) + " FROM @data")
    desk.world.drop("a.parquet", 60)

    said = planned(desk)

    assert said.code == 0
    assert said.out.startswith("new: 1 batch, 1 file\n")


@pytest.mark.parametrize("words", [["list"], ["plan", "planned", "ingest"]], ids=lambda words: words[0])
def test_what_airflow_logs_is_not_in_the_json(desk, dag_file, in_dags, words):
    dag_file()
    desk.world.drop("a.parquet", 60)
    in_dags("broken.py", "from airflow.sdk import DAG\nwith DAG('broken'):\n    1 / 0\n")
    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger().addHandler(handler)
    try:
        said = desk.reads(*words, "-o", "json")
    finally:
        logging.getLogger().removeHandler(handler)

    assert json.loads(said.out)
    assert "division by zero" in said.err
