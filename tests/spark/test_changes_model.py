"""Random commits to a source, loaded in random ranges by runs that die: the target is what a model says.

``CHANGES_COMMITS`` is how many commits each source gets, ``CHANGES_SEED`` replays one.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.spark.test_changes import Source
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.loads]

COMMITS = int(os.environ.get("CHANGES_COMMITS", "12"))
SEED = int(os.environ.get("CHANGES_SEED", "7"))


class Killed(BaseException):
    """The run is gone: nothing catches it."""


class World:
    """A source, what it holds as a plain dict, and the pipeline that follows it."""

    def __init__(self, source: Source, random: random.Random) -> None:
        self.source, self.random = source, random
        self.rows: dict[int, tuple[str, int | None]] = {}
        self.has_more = False
        self.done: list[str] = []
        self.texts = 0

    def text(self) -> str:
        self.texts += 1
        return f"t{self.texts}"

    def some(self, at_most: int = 4) -> list[int]:
        return self.random.sample(sorted(self.rows), min(len(self.rows), self.random.randint(1, at_most)))

    def free(self) -> list[int]:
        return [key for key in range(1, 30) if key not in self.rows]

    def run(self, statement: str) -> None:
        self.done.append(statement)
        self.source.do(statement)

    def values(self, rows: dict[int, str]) -> str:
        more = ", CAST(NULL AS INT)" if self.has_more else ""
        return ", ".join(f"({key}, '{text}'{more})" for key, text in rows.items())

    # ---- commits -------------------------------------------------------------------------------

    def insert(self) -> None:
        new = {key: self.text() for key in self.random.sample(self.free(), 3)}
        self.run(f"INSERT INTO @s VALUES {self.values(new)}")
        self.rows |= {key: (text, None) for key, text in new.items()}

    def update(self) -> None:
        keys, text = self.some(), self.text()
        more = ", w = id" if self.has_more else ""
        self.run(f"UPDATE @s SET v = '{text}'{more} WHERE id IN ({', '.join(map(str, keys))})")
        self.rows |= {key: (text, key if self.has_more else None) for key in keys}

    def delete(self) -> None:
        keys = self.some(2)
        self.run(f"DELETE FROM @s WHERE id IN ({', '.join(map(str, keys))})")
        self.rows = {key: row for key, row in self.rows.items() if key not in keys}

    def merge(self) -> None:
        changed, gone = self.some(), self.some(2)
        new = {key: self.text() for key in self.random.sample(self.free(), 2)}
        texts = {**{key: self.text() for key in changed}, **new}
        pairs = ", ".join(
            f"({key}, '{texts.get(key, '')}', {str(key in gone).lower()})" for key in {*texts, *gone}
        )
        self.run(
            f"MERGE INTO @s AS t USING (SELECT * FROM VALUES {pairs} AS x(id, v, d)) AS s ON t.id = s.id "
            "WHEN MATCHED AND s.d THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
            "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
        )
        for key, text in texts.items():
            self.rows[key] = (text, self.rows.get(key, ("", None))[1])
        self.rows = {key: row for key, row in self.rows.items() if key not in gone}

    def overwrite(self) -> None:
        kept = {key: self.text() if self.random.random() < 0.5 else self.rows[key][0] for key in self.some(9)}
        self.run(f"INSERT OVERWRITE @s VALUES {self.values(kept)}")
        self.rows = {key: (text, None) for key, text in kept.items()}

    def empty(self) -> None:
        self.run("DELETE FROM @s")
        self.rows = {}

    def move(self) -> None:
        old, new = self.some(1)[0], self.random.choice(self.free())
        self.run(f"UPDATE @s SET id = {new} WHERE id = {old}")
        self.rows[new] = self.rows.pop(old)

    def swap(self) -> None:
        one, two = (self.some(1)[0] for _ in range(2))
        self.run(f"UPDATE @s SET id = {one + two} - id WHERE id IN ({one}, {two})")
        self.rows[one], self.rows[two] = self.rows[two], self.rows[one]

    def widen(self) -> None:
        if not self.has_more:
            self.run("ALTER TABLE @s ADD COLUMNS (w INT)")
            self.has_more = True

    def optimize(self) -> None:
        self.run("OPTIMIZE @s")

    def change(self) -> None:
        acts: list[Callable[[], None]] = [self.insert]
        if self.rows:
            acts += [self.update, self.delete, self.merge, self.overwrite, self.move, self.swap, self.update]
            acts += [self.insert, self.merge, self.widen, self.optimize]
            if self.random.random() < 0.2:
                acts.append(self.empty)
        self.random.choice(acts)()


@pytest.mark.parametrize(("vectors", "mapping"), [("true", "none"), ("false", "name")])
def test_the_target_is_the_source_whatever_was_committed_and_whenever_a_run_died(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: str, mapping: str
) -> None:
    warm.use(monkeypatch, spark)
    chance = random.Random(f"{SEED} {vectors}")
    settings = {"delta.enableDeletionVectors": vectors, "delta.columnMapping.mode": mapping}
    source = Source(spark, tmp_path, **settings)
    world = World(source, chance)
    submit = warm.WarmRunner._submit

    def dying(runner: Any, *arguments: Any, **more: Any) -> None:
        dies = chance.random()
        if dies < 0.15:
            raise Killed
        submit(runner, *arguments, **more)
        if dies < 0.3:
            raise Killed

    monkeypatch.setattr(warm.WarmRunner, "_submit", dying)
    strategy = chance.choice(["upsert", "delete-insert"])
    write = {"kind": "merge", "primary_key": ["id"], "strategy": strategy}
    pipe = source.pipe(write, table={"schema_evolution": "add"})
    world.insert()
    for number in range(COMMITS):
        world.change()
        if number + 1 < COMMITS and chance.random() < 0.6:
            continue
        caps = {"max_commits_per_batch": chance.choice([None, 1, 2, 4])}
        while True:
            try:
                if not pipe.run(source={**pipe.arguments["source"], **caps}).batches:
                    break
            except Killed:
                continue
        # A column comes with the first rows behind it.
        columns = [field.name for field in DeltaTable(str(pipe.table)).schema().fields]
        expected = sorted(((key, *row) for key, row in world.rows.items()), key=repr)
        found = [row if "w" in columns else (*row, None) for row in pipe.rows(*columns)]
        assert found == expected, f"seed {SEED}: " + "; ".join(world.done)
