"""What ``airflow scope init`` writes for a source, and what it refuses. Spark is not started."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.dag_processing.dagbag import DagBag
from deltalake import write_deltalake
from pyarrow import orc, parquet

from airflow_provider_scope.cli.init import samples
from airflow_provider_scope.cli.init.files import folder_of
from airflow_provider_scope.cli.tasks import Instance
from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.exceptions import BadFileError
from airflow_provider_scope.specs import CdfSource, FileSource, JdbcSource, Merge, TableSpec
from airflow_provider_scope.values import FileEntry
from tests.cli.conftest import Desk
from tests.crash.world import DeltaWorld
from tests.datasets import packages
from tests.spark.jdbc_world import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.jdbc_world import World

MAPPED = {"delta.columnMapping.mode": "name"}


class Writer:
    """Somebody with a source, who has no Dag yet."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.desk = Desk(DeltaWorld(folder), capsys)
        self.landing = folder / "in"
        self.file = folder / "dags" / "odd name.py"

    def land(self, files: dict[str, bytes | str], age: float = 3600) -> None:
        for name, content in files.items():
            path = self.landing / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            os.utime(path, (time.time() - age,) * 2)

    def refused(self, *words: str) -> str:
        """Run the command, which writes nothing, and give its error."""
        before = self.tree()
        said = self.desk.scope("init", *words, f"{self.folder}/target", "--output", str(self.file))
        assert said.code == 1, said
        assert "Kept: " in said.err
        assert "What to do: " in said.err
        assert self.tree() == before
        return said.err

    def tree(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def text(self, *words: str) -> str:
        """Run the command, and give the file, which passes the linters that people have."""
        source = words or (str(self.landing),)
        said = self.desk.scope("init", *source, f"{self.folder}/target", "--output", str(self.file))
        assert said.code == 0, said
        for check in (["check"], ["format", "--check", "--diff"]):
            ruff = [Path(sys.executable).parent / "ruff", *check, "--isolated", str(self.file)]
            done = subprocess.run(ruff, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
        return self.file.read_text()

    def task(self, *words: str) -> Any:
        """Do so, and give the arguments of the task as a run gets them."""
        self.text(*words)
        dags = DagBag(dag_folder=str(self.file), bundle_name="dags-folder").dags
        assert [*dags] == ["odd_name"]
        return Instance(dags["odd_name"], dags["odd_name"].get_task("load")).ingest()


@pytest.fixture
def writer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Writer:
    return Writer(tmp_path, capsys)


# ---- files ----

HEADER = {"header": "true"}
CSV: dict[str, tuple[dict[str, bytes | str], dict[str, Any]]] = {
    "a header and a separator": (
        {"a.csv": "id;name\n1;x\n2;a,b\n", "b.csv": "id;name\n3;y\n"},
        {"options": {**HEADER, "sep": ";"}},
    ),
    "a file that is one record of names": ({"a.csv": "id,name\n"}, {"options": HEADER}),
    "no header": ({"a.csv": "1,x\n2,y\n"}, {"options": None}),
    "no header, words alone": ({"a.csv": "AF,Kabul\n", "b.csv": "AL,Tirana\n"}, {"options": None}),
    "a header of years": (
        {"a.csv": "land,1960,1961\nAB,1,2\nCD,3,4\n"} | {"b.csv": "land,1960,1961\n"},
        {"options": HEADER},
    ),
    "backslashes before quotes, line breaks": (
        {"a.csv": 'id,text\n1,"say \\"x\\",\nand go"\n2,"b"\n'},
        {"options": {**HEADER, "escape": "\\", "multiLine": "true"}},
    ),
    "an old encoding": (
        {"a.csv": "id,name\n1,M\xfcller\n".encode("cp1252"), "b.csv": "id,name\n2,ascii\n"},
        {"options": {**HEADER, "encoding": "ISO-8859-1"}},
    ),
    "compressed files": (
        {"a.csv.gz": gzip.compress(b"id|name\n1|x\n"), "b.csv.bz2": bz2.compress(b"id|name\n1|x\n")},
        {"options": {**HEADER, "sep": "|"}},
    ),
    "other names": ({"a.tsv": "id\tname\n1\tx\n"}, {"options": {**HEADER, "sep": "\t"}, "patterns": "tsv"}),
    "a readme beside them": ({"a.csv": "id\n1\n", "readme.txt": "x", "_SUCCESS": ""}, {"options": HEADER}),
    "an uneven record": (
        {"a.csv": "id,name\n1,x\n2,y\n3,z\n4\n"},
        {"options": HEADER, "bad_records": "quarantine"},
    ),
    "columns that come and go": (
        {"a.csv": "id,name\n1,x\n", "b.csv": "id,name,more\n2,y,z\n"},
        {"options": HEADER, "schema_evolution": "add"},
    ),
    "hardly a name that all files have": (
        {"a.csv": "id,price\n1,0.5\n", "b.csv": "nr,total\n2,1.5\n", "c.csv": "id,total\n"},
        {"options": HEADER, "schema_evolution": "add"},
    ),
    "blanks and capitals in names": (
        {"a.csv": "ID,unit price\n1,x\n"},
        {"options": HEADER, "properties": MAPPED},
    ),
    "values in the folders": (
        {"d=2026-11-25/h=07/n=1/a.csv": "id\n1\n", "d=2026-11-26/h=08/n=2/a.csv": "id\n2\n"},
        {"options": HEADER, "partition_columns": {"d": "date", "h": "string", "n": "bigint"}},
    ),
    "a value in the folders that is in the files, too": (
        {"ID=1/a.csv": "id\n1\n"},
        {"options": HEADER, "partition_columns": None},
    ),
}


@pytest.mark.parametrize("case", CSV)
def test_csv_files_are_read_as_they_are(writer, case):
    files, expected = CSV[case]
    writer.land(files)

    ingest = writer.task()

    source, table = ingest.source, ingest.table
    assert isinstance(source, FileSource)
    assert (source.format, source.columns, ingest.write) == ("csv", "infer", "append")
    pattern = expected.get("patterns")
    assert source.patterns is None if pattern is None else pattern in source.patterns[0]
    assert source.options == expected["options"]
    assert source.bad_records == expected.get("bad_records", "fail")
    assert source.partition_columns == expected.get("partition_columns")
    assert table.schema_evolution == expected.get("schema_evolution", "fail")
    assert (table.properties or {}) == expected.get("properties", {})


@pytest.mark.parametrize(
    ("name", "content", "options", "properties"),
    [
        ("a.jsonl", '{"id": 1, "s": {"a b": 1}}\n{"id": 2}\n', None, MAPPED),
        ("a.json", '[\n {"id": 1},\n {"id": 2}\n]\n', {"multiLine": "true"}, {}),
        ("a.json", '{"id": 1}', None, {}),
        ("a.json", '{"id": 1, "t": "a\u2028b\x85c"}\r\n{"id": 2}\n', None, {}),
        ("a.txt", "a line\n", None, {}),
    ],
)
def test_json_and_text_files_are_read_as_they_are(writer, name, content, options, properties):
    writer.land({name: content})

    ingest = writer.task()

    assert ingest.source.format == ("text" if name == "a.txt" else "json")
    assert (ingest.source.options, ingest.table.properties or {}) == (options, properties)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_names_inside_of_columns_are_seen_in_the_files(writer, kind):
    writer.land({})
    writer.landing.mkdir()
    table = pa.table({"id": [1], "list": [[{"in side": 1}]]})
    {"parquet": parquet, "orc": orc}[kind].write_table(table, writer.landing / f"a.{kind}")

    ingest = writer.task()

    assert (ingest.source.format, ingest.source.columns) == (kind, None)
    assert ingest.table.properties == MAPPED


def test_each_real_csv_file_is_recognised():
    wrong, count = [], 0
    for name, found in sorted(packages.files().items()):
        is_text = name.endswith((".csv", ".tsv", ".csv.gz"))
        if not is_text or packages.why(packages.LEFT_OUT, name) or hash_of(name) % 20:
            continue
        try:
            options = packages.case(found).options
        except packages.NoTableError:
            continue
        data, is_whole = samples.unpacked(name, found.read(), 2**23, is_whole=True)
        text, encoding = samples.decoded(data)
        look = samples.csv_sample(text, is_whole=is_whole)
        expected = (options.get("sep", ","), "header" in options, "multiLine" in options, None)
        separator = look.separator if len(look.first) > 1 else expected[0]
        count += 1
        if (separator, look.looks_like_header, look.has_line_breaks, encoding) != expected or look.uneven:
            wrong.append((name, expected, look))

    assert wrong == []
    assert count > 50


def hash_of(text: str) -> int:
    return sum(text.encode())


def test_a_beginning_is_not_taken_for_the_whole():
    assert samples.csv_sample('id,t\n1,"x', is_whole=False).uneven is None
    assert samples.csv_sample("id,t\n1,x\n2", is_whole=False).uneven is None
    assert samples.json_sample('{"id": 1}\n{"id', is_whole=False).names == ("id",)
    assert samples.json_sample('{\n "id": 1,\n', is_whole=False).is_document
    cut = gzip.compress(os.urandom(100_000))[:50_000]
    assert samples.unpacked("a.gz", cut, 2**20, is_whole=False)[1] is False
    assert samples.decoded("é".encode()[:1] and "aé".encode()[:2]) == ("a", None)


def test_each_guess_has_a_comment_and_nothing_in_a_name_ends_it(writer):
    writer.landing = writer.folder / "a \"it's\" 'n é"
    writer.land({"a.csv": "id,b\n1,x\n", "_hidden.csv": "x", "empty.csv": ""})
    writer.land({"young.csv": "id,b\n2,y\n"}, age=1)

    text = writer.text()
    dag = DagBag(dag_folder=str(writer.file), bundle_name="dags-folder").dags["odd_name"]
    ingest = Instance(dag, dag.get_task("load")).ingest()

    assert [*ingest.source.roots] == [str(writer.landing)]
    for argument in ("schedule", "delta_location", "roots", "columns", "safety_buffer_seconds", "write"):
        assert re.search(rf"^ +# .*\n +{argument}=", text, re.MULTILINE), argument
    words = " ".join(line.strip().removeprefix("# ") for line in text.splitlines())
    assert "2 files, 18 bytes; the newest is 'young.csv'" in words
    assert "1 file, hidden name, such as '_hidden.csv'" in words
    assert "1 file may still be written" in words


def test_files_on_another_store_are_looked_into_through_its_connection(writer, monkeypatch):
    (writer.folder / "account").mkdir()
    writer.landing = writer.folder / "account" / "in"
    writer.land({"csv/a.csv.gz": gzip.compress(b"id;a b\n1;x\n"), "parquet/none.txt": ""})
    parquet.write_table(pa.table({"id": [1], "a b": [1]}), writer.landing / "parquet" / "a.parquet")
    fed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(writer.landing / "fed", pa.table({"id": [1], "a b": [1]}), configuration=fed)
    monkeypatch.setenv("AIRFLOW_CONN_HDFS", json.dumps({"conn_type": "webhdfs", "login": "loader"}))
    with Emulator(writer.folder / "account", max_append_bytes=2**30) as emulator:
        root = f"webhdfs://127.0.0.1:{emulator.port}"
        for source, words in (("csv", ()), ("parquet", ()), ("fed", ("--key", "id"))):
            said = writer.desk.scope(
                "init", f"{root}/in/{source}", f"{root}/target", "--storage-conn-id", "hdfs", *words
            )
            assert (said.code, said.err) == (0, "")
            assert 'storage_conn_id="hdfs"' in said.out
            assert 'properties={"delta.columnMapping.mode": "name"}' in said.out
            assert ('"sep": ";"' in said.out) == (source == "csv")


@pytest.mark.parametrize("name", ["b.csv", "b.parquet"])
def test_a_file_that_vanishes_while_it_is_looked_at_is_not_taken_for_an_empty_one(name):
    class Store:
        def walk(self, root: str) -> list[FileEntry]:
            return [FileEntry(1_000, f"{root}/{name}", 9)]

        def read(self, path: str) -> None:
            return None

    with pytest.raises(BadFileError, match=f"{name} cannot be loaded: it is missing since"):
        folder_of("webhdfs://h/in", "webhdfs://h/in", Store(), None)


# ---- databases ----


def sqlite(writer: Writer, monkeypatch: pytest.MonkeyPatch, *statements: str) -> None:
    file = writer.folder / "shop.db"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))
    with closing(sqlite3.connect(file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


SQLITE: list[tuple[str, dict[str, Any], list[str] | None]] = [
    (
        '(id INTEGER PRIMARY KEY, "unit price" REAL, updated_at TEXT NOT NULL)',
        {"column": "updated_at"},
        ["id"],
    ),
    ("(id INTEGER PRIMARY KEY, t TEXT, exchange_date DATE)", {"column": "id", "lag": 0}, ["id"]),
    (
        "(a TEXT NOT NULL, b INT NOT NULL, UPDATED DATETIME, UNIQUE (b, a))",
        {"column": "UPDATED", "on_cursor_value_missing": "include"},
        ["b", "a"],
    ),
    ("(code TEXT NOT NULL PRIMARY KEY)", {"column": "code"}, None),
]


@pytest.mark.parametrize(("columns", "cursor", "key"), SQLITE)
def test_a_table_of_sqlite_is_loaded_by_what_shows_its_changes(writer, monkeypatch, columns, cursor, key):
    sqlite(writer, monkeypatch, f'CREATE TABLE "Order" {columns}')

    ingest = writer.task("shop:order")

    source = ingest.source
    assert isinstance(source, JdbcSource)
    assert (source.conn_id, source.table, source.options) == ("shop", '"Order"', None)
    defaults = {"on_cursor_value_missing": "raise", "lag": None}
    names = ("column", *defaults)
    assert {name: getattr(source.cursor, name) for name in names} == defaults | cursor
    assert [*ingest.write.primary_key] == key if key else type(ingest.write).__name__ == "Replace"
    assert (ingest.table.properties or {}) == (MAPPED if " price" in columns else {})


def test_values_that_their_column_does_not_declare_are_read_as_text(writer, monkeypatch):
    sqlite(
        writer,
        monkeypatch,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, `a n` INT, j JSON, b BLOB, d DATE)",
        "INSERT INTO t VALUES (1, 'late', '{}', x'00', 20260101), (2, 7, NULL, NULL, 1.5)",
    )

    assert writer.task("t", "--conn-id", "shop").source.options == {
        "customSchema": "`a n` STRING, `j` STRING"
    }


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with running_server() as server:
        yield server.new(tmp_path, monkeypatch)


@pytest.mark.jdbc
def test_a_table_of_postgresql_is_loaded_by_its_catalog(writer, world):
    world.run(
        "CREATE SCHEMA sales",
        'CREATE TABLE sales."Orders" (region text, "No" bigint, n numeric, nan numeric, wide numeric(60,2), '
        'exact numeric(9,2), "unit price" money, at timestamp, modified timestamp NOT NULL, '
        'PRIMARY KEY ("No", region))',
        'CREATE INDEX ON sales."Orders" (modified)',
        """INSERT INTO sales."Orders" VALUES ('x', 1, 123.4567, 'NaN', 1, 1, 1, now(), now())""",
        "ALTER DATABASE t1 SET timezone = 'Europe/Berlin'",
        'CREATE VIEW seen AS SELECT * FROM sales."Orders"',
    )

    ingest = writer.task("shop:sales.orders")

    assert ingest.source.table == 'sales."Orders"'
    assert ingest.source.cursor.column == "modified"
    assert ingest.source.time_zone == "Europe/Berlin"
    assert ingest.source.options == {"customSchema": "`n` DECIMAL(38,18), `nan` STRING, `wide` STRING"}
    assert [*ingest.write.primary_key] == ["No", "region"]
    assert ingest.table.properties == MAPPED
    assert "No index begins" not in writer.file.read_text()
    writer.file.unlink()
    assert "has no key" in writer.refused("shop:seen")
    assert "has no table 'sales.none'" in writer.refused("shop:sales.none")
    assert [*writer.task("shop:seen", "--key", "no").write.primary_key] == ["No"]


# ---- feeds ----


def feed(writer: Writer, **configuration: str) -> str:
    table = pa.table({"id": [1], "s": [{"a b": 1}]})
    write_deltalake(writer.folder / "source", table, configuration=configuration)
    return str(writer.folder / "source")


def test_a_feed_begins_with_all_rows_and_says_how_long_it_keeps_changes(writer):
    kept = {"delta.logRetentionDuration": "interval 2 days"}
    source = feed(writer, **{"delta.enableChangeDataFeed": "true"}, **kept)

    ingest = writer.task(source, "--key", "ID")

    assert isinstance(ingest.source, CdfSource)
    assert (ingest.source.full_load, ingest.source.deletes) == (True, "apply")
    assert ingest.write == Merge(strategy="upsert", primary_key="id")
    assert ingest.table == TableSpec(properties=MAPPED)
    assert "'interval 2 days'" in writer.file.read_text()
    assert "'interval 7 days'" in writer.file.read_text()


# ---- what is refused ----

REFUSED: dict[str, tuple[dict[str, bytes | str], str]] = {
    "no file": ({"_SUCCESS": ""}, "SourceEmptyError: The folder"),
    "empty files alone": ({"a.csv": ""}, "can be loaded: 1 file, zero length, such as 'a.csv'"),
    "several formats": (
        {"a.csv": "id\n1\n", "b.json": "{}"},
        "files of several formats or endings: 1 csv such as 'a.csv', 1 json such as 'b.json'",
    ),
    "no format": ({"a.xls": "x", "b": "y"}, "has a name of a known format: a.xls, b"),
    "not what its name says": ({"a.csv.gz": "id\n1\n"}, "BadFileError: The file"),
    "cut": ({"a.csv.gz": gzip.compress(b"id\n1\n")[:-9]}, "its compressed data is cut off"),
    "no parquet": ({"a.parquet": "PAR1, not really"}, "its columns could not be read"),
    "an encoding that Spark lacks": ({"a.csv": "id\n€\n".encode("cp1252")}, "neither UTF-8 nor ISO-8859-1"),
    "no JSON": ({"a.json": "id: 1\n"}, "it is not JSON"),
    "JSON that is too deep": ({"a.json": "[" * 100_000}, "it is not JSON"),
    "two separators": (
        {"a.csv": "id,b\n1,2\n", "b.csv": "id;b\n1;2\n"},
        "of two kinds",
    ),
    "a column without a name": ({"a.csv": ",b\n1,x\n"}, "no name for column 1"),
    "a name twice": ({"a.csv": "Id,id\nx,y\n"}, "'Id', 'id'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_no_run_could_load_is_refused(writer, case):
    files, message = REFUSED[case]
    writer.land(files)

    assert message in writer.refused(str(writer.landing))


def test_a_file_is_no_folder_and_files_have_no_key(writer):
    writer.land({"a.csv": "id\n1\n"})

    said = writer.refused(f"{writer.landing}/a.csv")
    assert "/in/a.csv is a file, and no folder.\n" in said
    assert "What to do: name a folder; for some of its files, use `patterns`" in said
    assert "/in is none: it has no _delta_log" in writer.refused(str(writer.landing), "--key", "id")


def test_the_printed_status_has_the_connection_of_the_store(writer):
    writer.land({"a.csv": "id\n1\n"})
    output = ("--output", str(writer.file), "--storage-conn-id", "the lake")

    said = writer.desk.scope("init", str(writer.landing), f"{writer.folder}/target", *output)

    assert said.out.endswith("  airflow scope status /target --storage-conn-id 'the lake'\n")


def test_a_name_that_airflow_takes_for_a_template_is_refused(writer):
    writer.landing = writer.folder / "{{ ds }}"
    writer.land({"a.csv": "id\n1\n"})

    assert "takes for a template" in writer.refused(str(writer.landing))


def test_a_folder_whose_name_fills_a_line_is_written(writer):
    writer.landing = writer.folder / ("long " * 30).strip() / "landing"
    writer.landing.parent.mkdir()
    writer.land({"a.txt": "a line\n"})

    assert writer.task().source.roots == (str(writer.landing),)


def test_one_of_several_formats_can_be_named(writer):
    writer.land({"a.csv": "id\n1\n", "b.json": "{}"})

    assert writer.task(str(writer.landing), "--format", "json").source.format == "json"


def test_of_two_endings_of_a_format_the_usual_one_is_taken_if_the_format_is_named(writer):
    writer.land({"a.csv": "id\n1\n", "b.tsv": "id\tname\n1\tx\n"})

    assert "such as `--format csv`" in writer.refused(str(writer.landing))
    assert writer.task(str(writer.landing), "--format", "csv").source.patterns is None
    text = " ".join(line.strip().removeprefix("# ") for line in writer.file.read_text().splitlines())
    assert "Not loaded: 1 file with other names." in text


def test_a_type_that_spark_lacks_is_named(writer):
    writer.landing.mkdir()
    parquet.write_table(pa.table({"at": pa.array([1], pa.time64("us"))}), writer.landing / "a.parquet")

    assert "its column 'at' is a time of day" in writer.refused(str(writer.landing))


@pytest.mark.parametrize(
    ("statement", "words", "message"),
    [
        ("CREATE TABLE t (n INT UNIQUE)", ("shop:t",), 'InputError: "t" has no key'),  # n may be NULL
        ("CREATE TABLE t (n INT)", ("shop:t", "--key", "no"), "has no column 'no'"),
        ("CREATE TABLE t (n INT)", ("shop:other",), "has no table 'other'"),
        ("CREATE TABLE t (n INT)", ("none:t",), "ConnectionMissingError: Airflow has no connection 'none'"),
        ("CREATE TABLE t (b BLOB NOT NULL UNIQUE)", ("shop:t",), "a type that a cursor can have"),
    ],
)
def test_a_table_that_no_run_could_load_is_refused(writer, monkeypatch, statement, words, message):
    sqlite(writer, monkeypatch, statement)

    assert message in writer.refused(*words)


def test_a_database_that_does_not_answer_is_an_error_and_no_table_without_columns(writer, monkeypatch):
    for fields, message in (
        ({"conn_type": "sqlite", "host": "/no/such.db"}, "There is no database file /no/such.db"),
        ({"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "schema": "x"}, "did not answer"),
        ({"conn_type": "mysql", "host": "x"}, "cannot be looked at"),
    ):
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields))
        assert message in writer.refused("shop:t")


def test_a_table_without_a_feed_or_a_key_is_refused(writer):
    source = feed(writer)
    odd = writer.folder / "a`b"
    write_deltalake(odd, pa.table({"id": [1]}))

    assert "ALTER TABLE delta.`/a``b` SET" in writer.refused(str(odd), "--key", "id")
    assert "ChangeFeedError" in writer.refused(source, "--key", "id")
    other = writer.folder / "fed"
    write_deltalake(other, pa.table({"id": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
    assert "such as --key id" in writer.refused(str(other))


def test_what_a_first_run_would_refuse_is_refused_before_there_is_a_file(writer):
    writer.land({"a.csv": "id\n1\n"})
    write_deltalake(writer.folder / "target", pa.table({"id": [1]}))
    refused = writer.refused(str(writer.landing))
    assert "UnknownRowsError" in refused
    assert "run `airflow scope accept-table /target`: " in refused

    parquet.write_table(pa.table({"id": [1]}), writer.landing / "a.parquet")
    (writer.landing / "a.csv").unlink()
    said = writer.desk.scope("init", str(writer.landing), f"{writer.landing}/table")
    assert (said.code, said.out) == (1, "")
    assert "InputError" in said.err


def test_a_file_is_written_over_only_if_that_is_said(writer):
    writer.land({"a.csv": "id\n1\n"})
    words = ("init", str(writer.landing), f"{writer.folder}/target", "--output", str(writer.file))
    first = writer.text()
    writer.file.write_text("mine")

    assert "--force" in writer.refused(str(writer.landing))
    said = writer.desk.scope(*words, "--force")
    assert writer.file.read_text() == first
    assert "airflow scope plan odd_name load --read\n" in said.out


def test_a_file_that_cannot_be_written_is_an_error(writer):
    writer.land({"a.csv": "id\n1\n"})
    (writer.folder / "file").touch()

    for name in (f"{'n' * 250}.example", "file/orders.py"):
        writer.file = writer.folder / name
        assert "could not be written: " in writer.refused(str(writer.landing))


@pytest.mark.parametrize(("name", "dag_id"), [("-x", "_x"), ("t" * 255, "t" * 250)], ids=["dash", "long"])
def test_the_name_of_each_table_gives_an_id_that_airflow_and_its_commands_take(writer, name, dag_id):
    writer.land({"a.csv": "id\n1\n"})

    said = writer.desk.scope("init", str(writer.landing), f"{writer.folder}/{name}")

    assert (said.code, said.err) == (0, "")
    assert f"`airflow scope plan {dag_id} load --read`" in said.out


def test_without_a_name_of_a_file_it_is_printed(writer):
    writer.land({"a.csv": "id\n1\n"})

    said = writer.desk.scope("init", str(writer.landing), f"{writer.folder}/target")

    assert said.code == 0
    assert said.out.startswith('"""Load new csv files')
    assert '    "target",\n' in said.out
