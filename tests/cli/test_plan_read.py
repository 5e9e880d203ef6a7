"""What ``airflow scope plan --read`` finds in the next batch: everything at once, and it writes nothing."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import orc, parquet

from airflow_provider_scope.spark.plan import EVENT
from tests.cli.conftest import Desk
from tests.crash.world import DeltaWorld
from tests.docs.pages import DOCS, blocks, section
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.spark

DAG = """\
from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

with DAG("flights", schedule=None) as dag:
    DeltaIncrementalIngestOperator(task_id="ingest", **{arguments!r})
"""
UPSERT = {"kind": "merge", "strategy": "upsert", "primary_key": "id"}


@pytest.fixture
def read(
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    in_dags: Callable[[str, str], Path],
) -> Callable[..., Any]:
    """Run the command on a task with these arguments; give the object that it prints, and its errors.

    A negative code is for what it says as text.
    """
    warm.use_in_tasks(monkeypatch, spark)
    desk = Desk(DeltaWorld(tmp_path), capsys)

    def run(code: int, **arguments: Any) -> Any:
        in_dags("read_first.py", DAG.format(arguments={"delta_location": f"{tmp_path}/table", **arguments}))
        before = tree(tmp_path)
        if code < 0:
            return desk.scope("plan", "flights", "ingest", "--read")
        said = desk.scope("plan", "flights", "ingest", "--read", "--output", "json")
        assert said.code == code, said
        assert tree(tmp_path) == before
        return json.loads(said.out[said.out.index("{\n") :]), said.err

    return run


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def source(folder: Path, files: dict[str, str], **more: Any) -> dict[str, Any]:
    (folder / "in").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / "in" / name).write_bytes(text.encode("latin-1"))
    return {"roots": f"{folder}/in", "safety_buffer_seconds": 0, **more}


def kinds(facts: dict[str, Any]) -> list[str]:
    return [refusal["type"] for refusal in facts["refusals"]]


def test_all_that_does_not_fit_is_named_at_once(read, tmp_path):
    files = {
        "a.csv": "id,a price,name\n1,2.5,a\n2,x,b\ny,1.0,c\n",
        "b.csv": "id,price,name\n1,2.5,a\n",
        "c.csv": "id,a price,name\n9,1.0,too long\n",
    }
    columns = {"id": "int", "a price": "decimal(5,2)", "name": "string"}
    facts, errors = read(
        1,
        source=source(tmp_path, files, format="csv", options={"header": "true"}, columns=columns),
        table={"partition_by": ["day"], "expect": {"short": "length(name) = 1"}},
    )

    # Whether Spark comes to the file or to the record first is its own affair.
    assert {*kinds(facts)} - {"BadFileError", "BadRecordError"} == {"InputError"}
    texts = " ".join(refusal["what"] for refusal in facts["refusals"])
    assert "partition_by names 'day'" in texts
    assert "`a price`" in texts
    folder = f"file://{tmp_path}/in".replace(str(tmp_path), "")
    bad = [line.replace(str(tmp_path), "") for line in facts["bad"]]
    assert f"1 record: a price is not decimal(5,2) ('x'), in record 2 of {folder}/a.csv" in bad
    assert f"1 record: id is not int ('y'), in record 3 of {folder}/a.csv" in bad
    assert "1 row: the rule 'short' of `expect`" in bad
    assert sum(line.startswith("1 file: ") for line in bad) == 1
    assert all(refusal["kept"] == "everything; nothing was written" for refusal in facts["refusals"])
    assert facts["error"]["what"] == facts["refusals"][-1]["what"]
    assert errors.count("What to do: ") == len(facts["refusals"])


RULES = {
    "positive": "n > 0",
    "small": {"predicate": "id < 4", "on_violation": "fail"},
    "late": {"predicate": "id > 1", "on_violation": "warn", "max_share": 0.1},
}
"""Two of the four rows break the first of them, and one each of the others."""


@pytest.mark.slow
@pytest.mark.parametrize("cursor", [False, True], ids=["files", "cursor"])
def test_rows_that_break_a_rule_are_counted_whatever_its_level(read, tmp_path, cursor):
    spec = source(tmp_path, {"a.csv": "id,n\n1,1\n2,-1\n3,\n4,4\n"}, format="csv")
    spec |= {"options": {"header": "true"}, "columns": {"id": "int", "n": "int"}}
    if cursor:
        rows = pa.table({"id": [1, 2, 3, 4], "n": [1, -1, None, 4]})
        write_deltalake(f"{tmp_path}/source", rows)
        spec = {"table": f"{tmp_path}/source", "cursor": {"column": "id"}}

    facts, _ = read(1, source=spec, table={"expect": RULES})

    assert kinds(facts) == ["BadRecordError"] * 2
    assert "1 of 4 rows (25%) breaks the rule 'late' (id > 1), which is more" in facts["refusals"][1]["what"]
    late, small = (f"1 of 4 rows (25%) breaks the rule {name!r}" for name in ("late", "small"))
    if cursor:
        assert {*facts["warned"]} == {late, small, "2 of 4 rows (50%) break the rule 'positive'"}
    else:
        assert facts["warned"] == [late]
        assert [line.split("`")[0] for line in facts["bad"]] == [
            "2 rows: the rule 'positive' of ",
            "1 row: the rule 'small' of ",
        ]

    only_late = {"late": {"predicate": "id > 1", "on_violation": "warn"}}
    facts, _ = read(0, source=spec, table={"expect": only_late})

    assert (facts["refusals"], facts["bad"], facts["warned"], facts["rows"]) == ([], [], [late], 4)


@pytest.mark.parametrize(
    "kind",
    ["parquet", *(pytest.param(kind, marks=pytest.mark.loads) for kind in ("csv", "json", "orc", "text"))],
)
def test_what_fits_is_counted(read, tmp_path, kind):
    texts = {"csv": "id\n1\n2\n", "json": '{"id": 1}\n{"id": 2}\n', "text": "1\n2\n"}
    more = {"options": {"header": "true"}} if kind == "csv" else {}
    if kind in ("csv", "json"):
        more["columns"] = {"id": "int"}
    spec = source(tmp_path, {f"a.{kind}": texts[kind]} if kind in texts else {}, format=kind, **more)
    if kind not in texts:
        module = {"parquet": parquet, "orc": orc}[kind]
        module.write_table(pa.table({"id": [1, 2]}), tmp_path / "in" / f"a.{kind}")

    facts, _ = read(0, source={**spec, "patterns": [rf"\.{kind}$"]})

    assert (facts["error"], facts["refusals"], facts["bad"], facts["rows"]) == (None, [], [], 2)


def test_it_prints_what_the_page_shows(read, tmp_path):
    page = section(DOCS / "commands.md", "### What the next batch holds")
    (block,) = blocks(page, "text")
    spec = source(tmp_path, {"flights.csv": "id,delay min\n1,7\n2,early\n3,late\n"}, format="csv")
    columns = {"id": "int", "delay min": "int"}

    said = read(-1, source={**spec, "options": {"header": "true"}, "columns": columns})

    shown = (
        block.text.partition("\n")[2].replace("/data/landing", "/in").replace("/data/delta/flights", "/table")
    )
    assert said.code == 1
    assert comparable(said.out + said.err) == comparable(shown)


def comparable(text: str) -> list[str]:
    text = re.sub(r"[\d,]+ bytes", "N bytes", text)
    lines = [re.sub(r"Spark's log: .*", "Spark's log: LOG", line) for line in text.splitlines()]
    return [line for line in lines if "[parent=" not in line and not line.startswith(EVENT)]


def test_what_would_be_quarantined_is_listed_and_no_error(read, tmp_path):
    spec = source(tmp_path, {"a.json": '{"id": 1}\n{"id": "x"}\n'}, format="json", columns={"id": "int"})

    facts, _ = read(0, source={**spec, "bad_records": "quarantine"})

    assert (facts["refusals"], facts["rows"]) == ([], 1)
    (line,) = facts["bad"]
    assert line.startswith("1 record: id is not int (")
    assert line.endswith(f", in record 2 of file://{tmp_path}/in/a.json".replace(str(tmp_path), ""))


@pytest.mark.parametrize("write", [pytest.param("append", marks=pytest.mark.loads), UPSERT])
def test_a_table_is_read_by_its_cursor_and_compared_with_the_target(read, tmp_path, write):
    write_deltalake(f"{tmp_path}/source", pa.table({"id": [1, None, None], "at": [1, 2, 3]}))
    write_deltalake(f"{tmp_path}/table", pa.table({"id": ["a"]}).slice(1))
    facts, _ = read(
        1, source={"table": f"{tmp_path}/source", "cursor": {"column": "at"}}, write=write, first_run="add"
    )

    assert "SchemaMismatchError" in kinds(facts)
    assert ("MergeKeyError" in kinds(facts)) == (write != "append")


def test_a_feed_is_read(read, tmp_path):
    options = {"configuration": {"delta.enableChangeDataFeed": "true"}}
    write_deltalake(f"{tmp_path}/source", pa.table({"id": [1, 2], "a b": [1, 2]}), **options)
    merge = UPSERT

    facts, _ = read(1, source={"table": f"{tmp_path}/source"}, write=merge)

    assert kinds(facts) == ["InputError"]
    assert "`a b`" in facts["error"]["what"]
    good, _ = read(0, source={"table": f"{tmp_path}/source"}, write=merge, sql="SELECT id FROM @data")
    assert (good["refusals"], good["rows"]) == ([], 2)


@pytest.mark.parametrize(
    "write",
    [
        {
            "kind": "merge",
            "primary_key": "id",
            "strategy": "upsert",
            "sequence_by": "n",
            "hard_delete": "gone",
        },
        pytest.param({"kind": "merge", "primary_key": "id"}, marks=pytest.mark.loads),
        {"kind": "scd2", "merge_key": "id"},
        {"kind": "replace", "where": "n > 0"},
        pytest.param("replace", marks=pytest.mark.loads),
    ],
)
def test_no_write_writes(read, tmp_path, write):
    rows = pa.table({"id": [1, 2], "n": [1, 2], "gone": [True, False]})
    write_deltalake(f"{tmp_path}/table", rows, configuration={"delta.autoOptimize.autoCompact": "false"})
    write_deltalake(f"{tmp_path}/source", rows)
    if write == {"kind": "scd2", "merge_key": "id"}:
        shutil.rmtree(tmp_path / "table")  # one that has no versions is refused

    facts, _ = read(
        0,
        source={"table": f"{tmp_path}/source", "cursor": {"column": "n"}},
        write=write,
        first_run="add",
        table={"properties": {"delta.appendOnly": "false"}},
    )

    assert facts["refusals"] == []


@pytest.mark.jdbc
def test_a_database_is_read(read, tmp_path, monkeypatch):
    file = tmp_path / "shop.db"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute('CREATE TABLE orders (id INTEGER, "a price" REAL)')
        connection.execute("INSERT INTO orders VALUES (1, 0.1), (2, NULL)")
        connection.commit()
    arguments = {"conn_id": "shop", "table": "orders", "cursor": {"column": "id"}}

    facts, _ = read(1, source=arguments)

    assert kinds(facts) == ["InputError"]
    assert facts["rows"] == 2
