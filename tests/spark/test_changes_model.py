"""Random commits to a source, followed by runs that die, in random ranges: each target is what a model says.

``CHANGES_COMMITS`` is how many commits a source gets, ``CHANGES_SEED`` replays a history:
``CHANGES_SEED=8 CHANGES_COMMITS=200 .venv/bin/pytest -m loads tests/spark/test_changes_model.py``.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_provider_scope.delta.write_rules import ROW_HASH, VALID_FROM, VALID_TO
from airflow_provider_scope.sources.feed.state import TIMESTAMP, TYPE, VERSION
from airflow_provider_scope.spark.session import with_settings
from tests.conftest import COMPILED
from tests.spark.feed_table import Source
from tests.support import warm
from tests.support.faulty_storage import FaultyStorage
from tests.support.feed_histories import KEY, FeedHistory, Read, Rows, after_batches, windows
from tests.support.merge_model import content
from tests.support.warm import SessionEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_provider_scope.protocol.log import CheckpointLog
    from tests.support.faulty_storage import Call
    from tests.support.merge_model import Row

pytestmark = [pytest.mark.spark, pytest.mark.loads]

COMMITS = int(os.environ.get("CHANGES_COMMITS", "12"))
SEED = int(os.environ.get("CHANGES_SEED", "7"))
MANY = 50
"""From so many commits on, all kinds of targets follow each source."""
UPSERT = {"kind": "merge", "primary_key": [KEY], "strategy": "upsert"}
DELETE_INSERT = {"kind": "merge", "primary_key": [KEY], "strategy": "delete-insert"}
SCD2 = {"kind": "scd2", "merge_key": [KEY]}
SOME = "SELECT * FROM @data WHERE CAST(substr(v, 2) AS int) % 3 <> 0"
TARGETS: tuple[tuple[Any, str, str], ...] = (
    (UPSERT, "apply", ""),
    (SCD2, "apply", ""),
    (DELETE_INSERT, "apply", ""),
    (UPSERT, "soft", ""),
    ("append", "apply", ""),
    (DELETE_INSERT, "ignore", ""),
    (SCD2, "ignore", ""),
    (DELETE_INSERT, "apply", SOME),
    (SCD2, "apply", SOME),
)
OWN = (VALID_FROM, VALID_TO, ROW_HASH)
FEED = (TYPE, VERSION, TIMESTAMP)


class Killed(BaseException):
    """The run is gone: nothing catches it."""


@dataclass
class Fate:
    """Lets runs die: at a write to the checkpoint, before their batch is submitted, and when it is done."""

    chance: random.Random
    deaths: int = 0

    def __call__(self, call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        when = self.chance.choice(["before", "torn", "after"])
        dies = call.writes and self.chance.random() < 0.06
        if dies and when == "torn" and torn:
            torn()
        result = effect() if when == "after" or not dies else None
        if dies:
            self.die()
        return result

    def die(self) -> None:
        self.deaths += 1
        raise Killed

    def around(self, submit: Callable[..., None]) -> Callable[..., None]:
        """Let the way to the application be deadly, and the way back."""

        def dying(*arguments: Any, **more: Any) -> None:
            dies = self.chance.random()
            if dies < 0.12:
                self.die()
            submit(*arguments, **more)
            if dies > 0.88:
                self.die()

        return dying


class Target:
    """A table that follows a source."""

    def __init__(
        self, source: Source, history: FeedHistory, fate: Fate, number: int, **settings: str
    ) -> None:
        self.write, self.deletes, self.sql = TARGETS[number]
        kind = self.write if self.write == "append" else self.write["kind"]
        self.name = f"{number} {kind} {self.deletes} {self.sql}"
        self.history, self.fate = history, fate
        table = {"schema_evolution": "add", "properties": settings}
        sql = {"sql": self.sql} if self.sql else {}
        self.pipe = source.pipe(self.write, deletes=self.deletes, table=table, **sql)
        self.pipe.table = source.folder / f"target {number}"
        self.log: CheckpointLog | None = None

    def load(self, *, to_the_end: bool) -> None:
        """Load a range, or all that there is, until no run dies; compare after each that did not."""
        while True:
            try:
                loaded = self._run({} if to_the_end else self._range())
            except Killed:
                continue
            self.check()
            if not loaded or not to_the_end:
                return

    def _range(self) -> dict[str, Any]:
        chance, newest = self.fate.chance, len(self.history.versions) - 1
        end = chance.choice([None, chance.randint(0, newest)])
        size = chance.choice([None, None, 1, 5000])
        return {"end_version": end, "max_bytes_per_batch": size}

    def _run(self, ends: dict[str, Any]) -> bool:
        chance = self.fate.chance
        of_source = {
            **self.pipe.arguments["source"],
            "max_commits_per_batch": chance.choice([None, 1, 2, 4]),
            **ends,
        }
        batches = chance.choice([1, 3])
        execution, request = self.pipe.execution(source=of_source, max_batches_per_run=batches)
        self.log = execution.log
        execution.log.storage = FaultyStorage(execution.log.storage, self.fate)
        return bool(execution.run(request).batches)

    # ---- what is there -------------------------------------------------------------------------------

    def check(self) -> None:
        reads = self.reads()
        if not reads:
            return
        rows = read(self.pipe.table)
        if self.write == "append":
            self._check_changes(rows, reads)
        elif self.write["kind"] == "merge":
            assert content_of(rows) == content_of(self._held(reads)[-1])
        else:
            self._check_windows(rows, reads)

    def reads(self) -> list[Read]:
        """Return the versions of each batch in the table; without a gap, and none twice."""
        assert self.log
        self.log.storage = getattr(self.log.storage, "inner", self.log.storage)
        found = []
        for seq in self.log.committed():
            one = self.log.offset(seq).slice
            assert one.first == (found[-1].last + 1 if found else one.first)
            found.append(Read(seq, one.first, one.last))
        return found

    def _held(self, reads: list[Read]) -> list[list[Row]]:
        return [*map(rows_of, self._after(reads))]

    def _after(self, reads: list[Read]) -> list[Rows]:
        return after_batches(
            self.history, reads, self.deletes, lambda row: not self.sql or int(row["v"][1:]) % 3 != 0
        )

    def _check_changes(self, rows: list[Row], reads: list[Read]) -> None:
        """Do the changes one after the other: that leads from each version of the source to the next one."""
        versions, first = [*map(rows_of, self.history.versions)], reads[0].first
        there = content_of(versions[first - 1]) if first else Counter()
        for version in range(first, reads[-1].last + 1):
            changes = [(row[TYPE], content(row, FEED)) for row in rows if row[VERSION] == version]
            gone = Counter(row for kind, row in changes if kind in ("delete", "update_preimage"))
            assert not gone - there, f"version {version}"
            there = (
                there - gone + Counter(row for kind, row in changes if kind.endswith(("insert", "postimage")))
            )
            assert there == content_of({KEY: k, **row} for k, row in self.history.versions[version].items())
        assert all(reads[0].first <= row[VERSION] <= reads[-1].last for row in rows)

    def _check_windows(self, rows: list[Row], reads: list[Read]) -> None:
        """Compare versions and windows: there is one instant for each batch, in the order of batches."""
        expected = windows(reads, self._after(reads))
        numbers = sorted({seq for one in expected for seq in (one.begins, one.ends) if seq is not None})
        instants = sorted({row[name] for row in rows for name in (VALID_FROM, VALID_TO) if row[name]})
        assert len(instants) == len(numbers)
        seq_of = dict(zip(instants, numbers, strict=True))
        found = [(content(row, OWN), seq_of[row[VALID_FROM]], seq_of.get(row[VALID_TO])) for row in rows]
        assert Counter(found) == Counter(
            (content(named({KEY: one.key, **one.row})), one.begins, one.ends) for one in expected
        )
        self._check_instants({seq: int(instant.timestamp() * 1000) for instant, seq in seq_of.items()})

    def _check_instants(self, instants: dict[int, int]) -> None:
        """Each lies between the commit before its batch and that of the batch."""
        times = {}
        for path in sorted((self.pipe.table / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            seq = next((action["txn"]["version"] for action in actions if "txn" in action), None)
            times[seq] = next(a["commitInfo"]["timestamp"] for a in actions if "commitInfo" in a)
        for seq, instant in instants.items():
            assert times.get(seq - 1, 0) <= instant <= times[seq]


def read(table: Path) -> list[Row]:
    """Read a table with delta-rs, which knows deletion vectors and column mapping here."""
    reader = QueryBuilder().register("found", DeltaTable(str(table)))
    rows = pa.table(reader.execute("SELECT * FROM found").read_all()).to_pylist()
    return [named(row) for row in rows]


def rows_of(rows: Rows) -> list[Row]:
    return [{KEY: key, **row} for key, row in rows.items()]


def named(row: Row) -> Row:
    """Return a row with names that do not depend on column mapping."""
    return {name.replace(" ", "_"): value for name, value in row.items()}


def content_of(rows: Any) -> Counter[Any]:
    return Counter(content(named(row)) for row in rows)


@pytest.fixture
def session(spark: Any, vectors: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a session that interprets; for half of the sources it compiles."""
    warm.use(monkeypatch, spark)
    with nullcontext() if vectors == "true" else with_settings(spark, COMPILED):
        yield spark


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_each_target_is_what_the_model_says_whatever_was_committed_and_whenever_a_run_died(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: str, mapping: str
) -> None:
    chance = random.Random(f"{SEED} {vectors} {mapping}")
    settings = {"delta.enableDeletionVectors": vectors, "delta.columnMapping.mode": mapping}
    source = Source(session, tmp_path, **settings)
    history = FeedHistory(source.do, source.path, chance, mapped=mapping == "name")
    fate = Fate(chance)
    monkeypatch.setattr(SessionEngine, "run_plan", fate.around(SessionEngine.run_plan))
    # Two of the others beside the usual ones, and others with each source.
    turn = 2 * (vectors == "true") + (mapping == "name")
    numbers = range(len(TARGETS)) if COMMITS >= MANY else (0, 1, 2 + turn, 2 + (turn + 4) % 7)
    targets = [Target(source, history, fate, number, **settings) for number in numbers]
    target = targets[0]
    try:
        for _ in range(COMMITS):
            history.change()
            if chance.random() < 0.4:
                target = chance.choice(targets)
                target.load(to_the_end=False)
        for target in targets:
            target.load(to_the_end=True)
            assert target.reads()[-1].last == len(history.versions) - 1
    except Exception as err:
        said = "; ".join(history.done)
        raise AssertionError(f"CHANGES_SEED={SEED}, {target.name}: {err}\n{said}") from err
    assert content_of(read(source.path)) == content_of(rows_of(history.rows))
