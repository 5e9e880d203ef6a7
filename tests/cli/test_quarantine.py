"""What the command says of a quarantine: how much is in it, how to see it all, and what may be given back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.core.records import Return

ALL = "SELECT * FROM delta.`file:///quarantine` WHERE pipeline = 'PIPELINE'"


@pytest.fixture
def bad(desk):
    """Give a desk where, of the files of three batches, one is aside as a whole and one in part."""
    desk.loaded("a.parquet", "b.parquet", "c.parquet")
    put(desk, 0, "a.parquet", None, "it cannot be read: it ends early", None)
    for number in (3, 5, 7):
        put(desk, 1, "b.parquet", number, "v is not int", f'{{"v":"x{number}"}}')
    put(desk, 1, "b.parquet", 2, "w is not date", '{"w":"y"}')
    desk.world.log().use_quarantine(place(desk))
    return desk


def place(desk: Any) -> str:
    return f"file://{desk.world.folder}/quarantine"


def uri(desk: Any, name: str) -> str:
    return f"file://{desk.world.folder}/landing/{name}"


def put(desk: Any, batch: int, name: str, record: int | None, *what: str | None) -> None:
    rule, raw = what
    row = {
        "pipeline": [desk.world.log().pipeline().pipeline],
        "batch": [batch],
        "file": [uri(desk, name)],
        "record": pa.array([record], pa.int64()),
        "rule": [rule],
        "raw": pa.array([raw], pa.string()),
    }
    write_deltalake(str(desk.world.folder / "quarantine"), pa.table(row), mode="append")


def test_the_listing_counts_the_records_of_each_file_and_rule_and_says_how_to_see_them_all(bad):
    said = bad.table_command("quarantine")

    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "quarantine  file:///quarantine",
        "            4 records, and 1 file as a whole",
        "batch 0: file:///landing/a.parquet",
        "  the whole file: it cannot be read: it ends early",
        "batch 1: file:///landing/b.parquet",
        "  3 records: v is not int",
        "  1 record: w is not date",
        '  the first of its 4 is record 2: {"w":"y"}',
        f"all of them, with all their records: {ALL}",
        "when files are repaired: --give-back FILE, or --give-back-all; the next run loads them",
    ]


def test_a_file_without_a_good_record_is_given_back_with_its_records(bad):
    put(bad, 2, "c.parquet", None, "none of its records can be loaded", None)
    put(bad, 2, "c.parquet", 1, "v is not int", '{"v":"x"}')

    before = bad.table_command("quarantine").out
    given = bad.table_command("quarantine", "--give-back", uri(bad, "c.parquet"), "--yes")
    after = bad.table_command("quarantine").out

    assert "5 records, and 2 files as a whole" in before
    assert "  the whole file: none of its records can be loaded\n  1 record: v is not int\n" in before
    assert given.code == 0
    assert "4 records, and 1 file as a whole" in after
    assert bad.world.run().files == 1


def test_a_file_with_rows_in_the_table_is_refused_with_the_way_on(bad):
    said = bad.table_command("quarantine", "--give-back", uri(bad, "b.parquet"), "--yes")

    assert said.code == 1
    assert said.err == (
        "InputError: The file file:///landing/b.parquet cannot be given back: 4 records of it were "
        "quarantined, but the file was not. Its other rows are in the table, and would be doubled.\n"
        "Kept: everything; nothing was written\n"
        "What to do: write the repaired records into a new file, and let the next run load it; or, if the "
        "declaration was wrong and not the file, run once with full_refresh=True\n"
    )
    assert bad.world.log().returns() == []


def test_a_file_that_was_given_back_already_is_named_with_the_run_that_reads_it(bad):
    words = ("quarantine", "--give-back", uri(bad, "a.parquet"), "--yes")
    bad.table_command(*words)

    waiting = bad.table_command(*words)
    bad.world.run()
    loaded = bad.table_command(*words)

    assert (waiting.code, loaded.code) == (1, 1)
    assert waiting.err == (
        "InputError: The file file:///landing/a.parquet was given back already, after batch 2; no batch has "
        "included it since.\n"
        "Kept: everything; nothing was written\n"
        "What to do: run the task: it loads the file if it is there\n"
    )
    assert loaded.err == (
        "InputError: The file file:///landing/a.parquet was given back already, after batch 2; batch 3 has "
        "loaded it since.\n"
        "Kept: everything; nothing was written\n"
        "What to do: nothing: the file is loaded\n"
    )
    assert len(bad.world.log().returns()) == 1


def test_a_file_that_was_given_back_and_is_in_an_open_batch_is_told(bad):
    bad.table_command("quarantine", "--give-back", uri(bad, "a.parquet"), "--yes")
    bad.fails("files 3", lambda: bad.world.hide("a.parquet"))

    said = bad.table_command("quarantine", "--give-back", uri(bad, "a.parquet"), "--yes")

    assert "batch 3 has included it since, but is not in the table yet.\n" in said.err
    assert "What to do: run the task: it runs that batch first" in said.err


def test_all_are_given_back_and_those_that_are_gone_are_named(bad):
    put(bad, 2, "c.parquet", None, "it cannot be read: it is damaged", None)
    bad.world.hide("a.parquet")

    asked = bad.table_command("quarantine", "--give-back-all")
    given = bad.table_command("quarantine", "--give-back-all", "--yes")
    again = bad.table_command("quarantine", "--give-back-all", "--yes")

    gone = [
        "1 of them does not exist now: later runs load it once it does",
        "  file:///landing/a.parquet",
    ]
    files = ["  file:///landing/a.parquet", "  file:///landing/c.parquet"]
    assert asked.out.splitlines() == [
        *files,
        *gone,
        "2 files would count as new; the next run loads what it finds",
        "nothing was written; add --yes to do it",
    ]
    assert given.out.splitlines()[:-1] == [*files, *gone]
    assert given.out.splitlines()[-1].startswith("given back, as file:///table/_checkpoint/returned/")
    assert again.out == "there is no file to give back\n"
    assert bad.world.run().files == 1
    (bad.world.folder / "a.parquet").rename(bad.world.folder / "landing" / "a.parquet")
    assert bad.world.run().files == 1
    assert bad.world.run().files == 0


def test_a_store_that_does_not_tell_what_is_there_does_not_stop_what_is_given_back(bad, monkeypatch):
    from airflow_provider_scope.cli import quarantine
    from airflow_provider_scope.exceptions import StorageError
    from airflow_provider_scope.storage.local import LocalStorage

    class Deaf(LocalStorage):
        def names(self, folder: str) -> list[str]:
            if folder.endswith("/landing"):
                raise StorageError("Connection refused")
            return super().names(folder)

    real = quarantine.store_of
    monkeypatch.setattr(quarantine, "store_of", lambda *names: type(real(*names))(storage=Deaf()))

    said = bad.table_command("quarantine", "--give-back-all", "--yes")

    assert said.code == 0
    assert "could not check whether they exist: Connection refused\n" in said.out
    assert bad.world.log().returns()[0] == Return(number=0, after=2, files=(uri(bad, "a.parquet"),))
