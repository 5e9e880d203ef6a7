"""``status`` and ``quarantine`` with ``--output json``: one object, each of whose fields is on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.cli import inspection
from airflow_provider_scope.values import window_of
from tests.crash.world import DeltaWorld

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
ERROR = {"type", "what", "kept", "do"}
BATCH = {"batch", "mode", "where", "reads", "files", "bytes"}


@pytest.fixture
def desk(desk: Any, tmp_path: Path) -> Any:
    """Return a desk whose paths hold what JSON and a shell write in ways of their own."""
    desk.world = DeltaWorld(tmp_path / "it's “é”")
    return desk


def facts(desk: Any, command: str, *words: str, code: int = 0) -> dict[str, Any]:
    said = desk.table_command(command, "-o", "json", *words)
    assert (said.code, bool(said.err)) == (code, bool(code)), said
    text = json.dumps(json.loads(said.out), ensure_ascii=False)
    found: dict[str, Any] = json.loads(text.replace(str(desk.world.folder), ""))
    documented = re.search(rf"^\| `{command}` \| (`.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert documented
    inner = {"error", *ERROR, *BATCH}
    assert _names(found) - inner <= set(re.findall(r"`(\w+)`", documented[1]))
    return found


def _names(value: Any) -> set[str]:
    if isinstance(value, list):
        return {name for item in value for name in _names(item)}
    if isinstance(value, dict):
        values = [item for name, item in value.items() if name != "rules"]
        return {*value, *(name for item in values for name in _names(item))}
    return set()


def test_the_status_of_a_pipeline_with_an_open_batch_and_of_one_without(desk: Any) -> None:
    desk.loaded("a.parquet", "b.parquet")
    done = facts(desk, "status")
    desk.vanished("c.parquet", 2)
    blocked = facts(desk, "status")

    assert done == {
        "error": None,
        "table": "file:///table",
        "checkpoint": "file:///table/_checkpoint",
        "pipeline": "PIPELINE",
        "table_id": "TABLE-ID",
        "table_version": 1,
        "newest_batch_in_table": 1,
        "logged": 2,
        "vacuumed_below": 0,
        "committed": {
            "batch": 1,
            "table_version": 1,
            "files": 1,
            "rows": 2,
            "is_abandoned": False,
            "at": "2023-11-14T22:13:20.000000+00:00",
        },
        "state": None,
        "open": [],
        "blocked": [],
    }
    (batch,) = blocked.pop("open")
    assert {name: batch[name] for name in BATCH - {"reads", "bytes"}} == {
        "batch": 2,
        "mode": "append",
        "where": None,
        "files": ["file:///landing/c.parquet"],
    }
    assert blocked.pop("blocked") == ["blocked: file:///landing/c.parquet is missing"]
    assert blocked == {**{name: done[name] for name in blocked}, "logged": 3}


def test_the_status_of_a_restored_table_has_its_facts_and_the_error_with_a_whole_command(desk: Any) -> None:
    desk.loaded("a.parquet", "b.parquet")
    desk.world.restore(0)

    found = facts(desk, "status", code=1)

    assert found.keys() > {"table", "pipeline", "open", "committed"}
    assert found["error"].keys() == ERROR
    assert found["error"]["type"] == "TableRestoredError"
    assert "`airflow scope accept-table 'file://" in found["error"]["do"]


def test_the_status_of_a_folder_without_a_pipeline_and_of_one_with_intervals_alone(desk: Any) -> None:
    nothing = facts(desk, "status", code=1)
    assert nothing.keys() == {"error", "table", "checkpoint"}
    assert nothing["error"]["type"] == "InputError"

    window = window_of("20231114T000000000Z_20231115T000000000Z")
    world = desk.world.of(window)
    world.drop("a.parquet", 7_200)
    world.run()
    alone = facts(desk, "status")
    desk.world = world
    one = facts(desk, "status", "--interval", window.name)

    assert alone == {"error": None, "table": "file:///table", "checkpoint": "file:///table/_checkpoint"}
    assert (one["logged"], one["committed"]["batch"], one["error"]) == (1, 0, None)


def test_what_is_quarantined_is_counted_by_file_and_rule_and_it_is_said_how_to_see_it_all(desk: Any) -> None:
    desk.loaded("a.parquet", "b.parquet")
    nothing = facts(desk, "quarantine")
    place = f"file://{desk.world.folder}/quarantine"
    rows = {
        "batch": [0, 1, 1, 1],
        "file": [f"file://{desk.world.folder}/landing/{name}.parquet" for name in "abbb"],
        "record": pa.array([None, 3, 5, 2], pa.int64()),
        "rule": ["it cannot be read", 'v is not "int"', 'v is not "int"', "w is not date"],
        "raw": pa.array([None, '{"v":"x"}', "é", '{"w":\n"y"}'], pa.string()),
        "pipeline": [desk.world.log().pipeline().pipeline] * 4,
    }
    write_deltalake(str(desk.world.folder / "quarantine"), pa.table(rows))
    desk.world.log().use_quarantine(place)

    found = facts(desk, "quarantine")

    assert nothing == {"error": None, "pipeline": "PIPELINE", "tables": [], "quarantined": []}
    assert (found["error"], found["pipeline"], found["tables"]) == (None, "PIPELINE", ["file:///quarantine"])
    assert found["quarantined"] == [
        {
            "batch": 0,
            "file": "file:///landing/a.parquet",
            "whole_file": "it cannot be read",
            "records": 0,
            "rules": {},
        },
        {
            "batch": 1,
            "file": "file:///landing/b.parquet",
            "whole_file": None,
            "records": 3,
            "rules": {'v is not "int"': 2, "w is not date": 1},
        },
    ]
    said = desk.table_command("quarantine")
    assert (said.code, said.err) == (0, "")
    sql = "SELECT * FROM delta.`file:///quarantine` WHERE pipeline = 'PIPELINE'"
    assert said.out.splitlines() == [
        "quarantine  file:///quarantine",
        "            3 records, and 1 file as a whole",
        "batch 0: file:///landing/a.parquet",
        "  the whole file: it cannot be read",
        "batch 1: file:///landing/b.parquet",
        '  2 records: v is not "int"',
        "  1 record: w is not date",
        r'  the first of its 3 is record 2: {"w":\n"y"}',
        f"all of them, with all their records: {sql}",
    ]


def test_a_command_that_breaks_down_has_no_json_that_says_there_was_no_error(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.loaded("a.parquet")

    def breaks_down(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(inspection, "read_log", breaks_down)
    with pytest.raises(MemoryError):
        desk.table_command("status", "-o", "json")

    assert desk.capsys.readouterr().out == ""


def test_a_place_without_a_pipeline_has_no_quarantine_but_an_error(desk: Any) -> None:
    found = facts(desk, "quarantine", code=1)

    assert found.keys() == {"error"}
    assert found["error"].keys() == ERROR
