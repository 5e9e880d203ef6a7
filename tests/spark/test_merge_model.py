"""Random histories of row-level writes through the application's own code, compared with a plain model.

The whole table is compared after each load, as delta-rs reads it. To replay the history that failed:
``MERGE_SEED=17 MERGE_LOADS=5 .venv/bin/pytest tests/spark/test_merge_model.py``.
"""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_provider_scope.exceptions import MergeKeyError
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark import settings as core_settings
from airflow_provider_scope.spark.files import reading
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.specs.write import for_plan, write_from
from tests.conftest import COMPILED
from tests.spark.conftest import Bench
from tests.support import merge_model
from tests.support.merge_histories import LOADS, History, Load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_provider_scope.values import FileEntry
    from tests.support.merge_model import Row

pytestmark = pytest.mark.spark

FIRST = int(os.environ.get("MERGE_SEED", "172"))
"""The first seed: an upsert that is compiled, a delete-insert by both keys with deletes, and versions."""
HISTORIES = max(1, int(os.environ.get("MERGE_LOADS", "15")) // LOADS)
FEW = 3 if not {"MERGE_SEED", "MERGE_LOADS"} & {*os.environ} else LOADS
"""Loads of a history that are tried."""
HASH = "_row_hash"


def read(bench: Bench) -> list[Row]:
    """Read the table with delta-rs, which knows deletion vectors and column mapping here."""
    reader = QueryBuilder().register("stored", DeltaTable(str(bench.table)))
    return pa.table(reader.execute("SELECT * FROM stored").read_all()).to_pylist()


def files_of(bench: Bench, load: Load, name: str) -> list[FileEntry]:
    """Write the rows of a load to one or two files."""
    schema = pa.schema([(load.names[column], kind) for column, kind in load.types.items()])
    half = len(load.rows) // 2 if len(load.rows) % 3 == 0 else 0
    entries = []
    for number, rows in enumerate([load.rows[:half], load.rows[half:]] if half else [load.rows]):
        path = bench.folder / "landing" / f"{name}-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = [pa.array([row[column] for row in rows], kind) for column, kind in load.types.items()]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
        entries.append(bench.entry(path))
    return entries


def new_commits(bench: Bench, before: int) -> list[list[dict[str, Any]]]:
    """Return the actions of each commit after a version."""
    commits = sorted((bench.table / "_delta_log").glob("*.json"))
    new = [commit for commit in commits if int(commit.stem) > before]
    return [[json.loads(line) for line in commit.read_text().splitlines()] for commit in new]


def check_commits(bench: Bench, before: int, seq: int) -> None:
    """One commit has the rows, the number and what is said of the batch; others change properties alone."""
    ours = 0
    for actions in new_commits(bench, before):
        numbers = [action["txn"] for action in actions if "txn" in action]
        if not numbers:
            assert not any("add" in action or "remove" in action for action in actions), actions
            continue
        ours += 1
        (txn,) = numbers
        assert (txn["appId"], txn["version"]) == (bench.plan.pipeline, seq)
        (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
        said = json.loads(info["userMetadata"])
        assert (said["pipeline"], said["seq"]) == (bench.plan.pipeline, seq)
    assert ours == 1, f"{ours} commits with the number of the batch"


class Table:
    """The table as the model has it."""

    def __init__(self) -> None:
        self.rows: list[Row] | None = None
        self.names: dict[str, str] = {}
        """Lower case -> the name of the column."""

    def after(self, load: Load, found: list[Row]) -> list[Row]:
        """Return the rows after a load; of those that may count, the one that is in the table does."""
        for name in load.types:
            self.names.setdefault(name.lower(), name)
        missing = dict.fromkeys(self.names.values())
        rows = [{**missing, **row} for row in load.rows]
        old = None if self.rows is None or load.overwrites else [{**missing, **row} for row in self.rows]
        there = {merge_model.content(row) for row in found}

        def pick(options: Any) -> Row | None:
            for row in options:
                if row is not None and merge_model.content(row) in there:
                    return row
            return None if None in options else options[0]

        how = load.how
        if how["kind"] == "append":
            return (old or []) + rows
        if how["kind"] == "merge":
            return merge_model.merge(old, rows, how, pick)
        return merge_model.scd2(old, rows, how, load.boundary)


def check_hashes(found: list[Row], how: dict[str, Any]) -> None:
    """Versions with equal values have one hash, and others have others."""
    pairs = {(merge_model.content(row, (HASH, *how["validity_column_names"])), row[HASH]) for row in found}
    assert len({values for values, _ in pairs}) == len({one for _, one in pairs}) == len(pairs)


@pytest.fixture
def session(spark: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a session that interprets; for one history of four it compiles.

    Half of the histories are merged as large batches are.
    """
    if seed % 2 == 0:
        monkeypatch.setattr(core_settings, "SMALL_ROWS", -1)
    with nullcontext() if seed % 4 else with_settings(spark, COMPILED):
        yield spark


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_a_table_holds_what_the_model_says_after_each_load(session: Any, tmp_path: Path, seed: int) -> None:
    history, bench, table = History(seed), Bench(session, tmp_path), Table()
    seq = 0
    for number in range(FEW):
        load = history.load(number)
        try:
            bench.plan = bench.plan.with_spec(**history.table)
            seq += run(bench, table, load, seq, f"load{number}")
        except Exception as err:
            about = f"{load.argued} {load.names} {history.table}"
            raise AssertionError(
                f"MERGE_SEED={seed}, load {number}: {err}\n{about}\n{load.types}\n{load.rows}"
            ) from err


def run(bench: Bench, table: Table, load: Load, seq: int, name: str) -> bool:
    """Run a load, and compare the table; tell whether it was taken, or refused as the model does."""
    before = bench.version() if DeltaTable.is_deltatable(str(bench.table)) else -1
    refresh = {"mode": "overwrite", "refresh_start": seq, "overwrite_start": seq} if load.overwrites else {}
    entry = bench.batch(seq, *files_of(bench, load, name), **refresh)
    write = for_plan(write_from("append" if load.how["kind"] == "append" else load.argued))
    bench.plan = replace(bench.plan, write=write)
    target = Target(bench.spark, bench.plan, load.boundary)
    rows = functools.partial(reading.read, bench.spark, bench.plan, entry)
    try:
        app.run_batch(bench.plan, target, entry, rows)
    except MergeKeyError:
        with pytest.raises(merge_model.RefusedError):
            table.after(load, [])
        assert before == -1 or not [
            a for actions in new_commits(bench, before) for a in actions if "txn" in a
        ]
        return False
    stored = read(bench)
    found = [{name: value for name, value in row.items() if name != HASH} for row in stored]
    expected = table.after(load, found)
    differs = Counter(map(merge_model.content, found))
    differs.subtract(map(merge_model.content, expected))
    more = [dict(row) for row, count in differs.items() if count > 0]
    less = [dict(row) for row, count in differs.items() if count < 0]
    assert (more, less) == ([], []), f"in the table alone, in the model alone; before: {table.rows}"
    check_commits(bench, before, seq)
    if stored and HASH in stored[0]:
        check_hashes(stored, load.how)
    table.rows = expected
    return True
