"""Random commits to a Delta table with a change data feed, and a plain model of the tables that follow it.

Nothing here asks the feed: the model knows what the statements did, and what is made of that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.sources.feed.state import DELETED
from tests.support.merge_model import Row, content

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from pathlib import Path

Rows = dict[int, Row]
"""The key of a row, and its other values; a column that is absent is NULL."""
KEY = "id"
KEYS = range(1, 60)
ADDED = (("w", "INT"), ("x y", "STRING"), ("n", "STRUCT<a: INT>"), ("n.b", "INT"))
"""Columns that come, in this order."""
FEW = 3
"""Rows below which rows are likely to come."""


@dataclass
class FeedHistory:
    """A source, and what it holds after each of its versions.

    :param do: Runs a statement, with ``@s`` for the table.
    :param mapped: Whether columns are mapped: then their names may be odd.
    """

    do: Callable[[str], None]
    folder: Path
    chance: random.Random
    mapped: bool
    versions: list[Rows] = field(default_factory=lambda: [{}])
    """Version -> rows. The first version is that of the empty table."""
    moved: dict[int, set[int]] = field(default_factory=dict)
    """Version -> keys that updates took from rows."""
    done: list[str] = field(default_factory=list)
    texts: int = 0
    added: int = 0

    @property
    def rows(self) -> Rows:
        return self.versions[-1]

    def change(self) -> None:
        """Commit one statement."""
        acts: list[Callable[[], None]] = [self.insert]
        if len(self.rows) >= FEW:
            acts += [self.update, self.update, self.delete, self.merge, self.merge, self.insert, self.again]
            acts += [self.overwrite, self.replace, self.move, self.rotate, self.widen, self.idle]
            if self.chance.random() < 0.3:
                acts.append(self.empty)
        self.chance.choice(acts)()

    # ---- statements ------------------------------------------------------------------------------------

    def insert(self) -> None:
        new = {key: self._row() for key in self._free(3)}
        self._run(f"INSERT INTO @s VALUES {self._values(new)}", {**self.rows, **new})

    def update(self) -> None:
        keys = self._some(4)
        changed = {name: self._value(name) for name in self.chance.sample(self._columns(), 1)}
        sets = ", ".join(
            f"{self._name(name)} = {self._literal(name, value)}" for name, value in changed.items()
        )
        after = {key: {**row, **changed} if key in keys else row for key, row in self.rows.items()}
        self._run(f"UPDATE @s SET {sets} WHERE id IN ({_list(keys)})", after)

    def delete(self) -> None:
        keys = self._some(2)
        self._run(f"DELETE FROM @s WHERE id IN ({_list(keys)})", self._without(keys))

    def merge(self) -> None:
        """Update, delete and insert in one commit."""
        changed, gone = self._some(4), self._some(2)
        texts = {key: self._text() for key in {*changed, *gone, *self._free(2)}}
        pairs = ", ".join(f"({key}, '{text}', {str(key in gone).lower()})" for key, text in texts.items())
        nulls = "".join(f", {self._literal(name, None)}" for name in self._columns()[1:])
        self._run(
            f"MERGE INTO @s AS t USING (SELECT * FROM VALUES {pairs} AS x(id, v, d)) AS s ON t.id = s.id "
            "WHEN MATCHED AND s.d THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
            f"WHEN NOT MATCHED THEN INSERT ({self._names()}) VALUES (s.id, s.v{nulls})",
            {**self.rows, **{k: {**self.rows.get(k, {}), "v": text} for k, text in texts.items()}},
            gone=gone,
        )

    def again(self) -> None:
        """Delete rows and insert others with their keys, in one commit."""
        new = {key: {"v": self._text()} for key in self._some(2)}
        old = ", ".join(f"({key}, '', true)" for key in new)
        pairs = ", ".join(f"({key}, '{row['v']}', false)" for key, row in new.items())
        nulls = "".join(f", {self._literal(name, None)}" for name in self._columns()[1:])
        self._run(
            f"MERGE INTO @s AS t USING (SELECT * FROM VALUES {old}, {pairs} AS x(id, v, old)) AS s "
            "ON t.id = s.id AND s.old WHEN MATCHED THEN DELETE "
            f"WHEN NOT MATCHED THEN INSERT ({self._names()}) VALUES (s.id, s.v{nulls})",
            {**self.rows, **new},
        )

    def overwrite(self) -> None:
        """Write all rows anew: some as they were, some changed, some not at all."""
        kept = {key: self._row() if self.chance.random() < 0.5 else self.rows[key] for key in self._some(9)}
        self._run(f"INSERT OVERWRITE @s VALUES {self._values(kept)}", kept)

    def replace(self) -> None:
        """Write the rows of a range anew."""
        first = self.chance.choice(KEYS)
        within = range(first, first + 6)
        new = {key: self._row() for key in self.chance.sample(within, 3)}
        kept = {key: row for key, row in self.rows.items() if key not in within}
        where = f"id >= {first} AND id < {within.stop}"
        self._run(f"INSERT INTO @s REPLACE WHERE {where} VALUES {self._values(new)}", {**kept, **new})

    def empty(self) -> None:
        how = ["DELETE FROM @s", "TRUNCATE TABLE @s", "INSERT OVERWRITE @s SELECT * FROM @s WHERE false"]
        self._run(self.chance.choice(how), {})

    def move(self) -> None:
        """Return a row another key."""
        (old,), (new,) = self._some(1), self._free(1)
        after = {**self._without([old]), new: self.rows[old]}
        self._run(f"UPDATE @s SET id = {new} WHERE id = {old}", after, moved={old})

    def rotate(self) -> None:
        """Let rows exchange their keys."""
        keys = self._some(3)
        pairs = [*zip(keys, [*keys[1:], keys[0]], strict=True)]
        cases = " ".join(f"WHEN {old} THEN {new}" for old, new in pairs)
        after = {**self.rows, **{new: self.rows[old] for old, new in pairs}}
        self._run(f"UPDATE @s SET id = CASE id {cases} END WHERE id IN ({_list(keys)})", after)

    def widen(self) -> None:
        """Add a column, or a field to one."""
        if self.added < len(ADDED):
            name, kind = ADDED[self.added]
            self.added += 1
            self._run(f"ALTER TABLE @s ADD COLUMNS ({self._name(name)} {kind})", self.rows)

    def idle(self) -> None:
        """Commit what changes no row."""
        key = self._some(1)[0]
        statements = [
            "OPTIMIZE @s",
            "ALTER TABLE @s SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
            f"UPDATE @s SET v = v WHERE id = {key}",
        ]
        self._run(self.chance.choice(statements), self.rows)

    # ---- what they are made of ---------------------------------------------------------------------------

    def _run(
        self, statement: str, after: Rows, *, gone: Iterable[int] = (), moved: Iterable[int] = ()
    ) -> None:
        self.done.append(statement)
        self.do(statement)
        after = {key: row for key, row in after.items() if key not in {*gone}}
        newest = max(int(path.stem) for path in (self.folder / "_delta_log").glob("*.json"))
        if newest == len(self.versions) - 1:
            assert contents(after) == contents(self.rows), f"no commit: {statement}"
            return
        assert newest == len(self.versions), f"several commits: {statement}"
        self.moved[newest] = {*moved}
        self.versions.append(after)

    def _columns(self) -> list[str]:
        return ["v", *(name for name, _ in ADDED[: self.added] if "." not in name)]

    def _name(self, name: str) -> str:
        """Return a column's name in SQL; without mapping there is none with a space."""
        return f"`{name}`" if self.mapped and " " in name else name.replace(" ", "_")

    def _names(self) -> str:
        return ", ".join([KEY, *map(self._name, self._columns())])

    def _row(self) -> Row:
        return {name: self._value(name) for name in self._columns()}

    def _value(self, name: str) -> Any:
        if name == "v":
            return self._text()
        if self.chance.random() < 0.3:
            return None
        if name == "w":
            return self.chance.randrange(5)
        if name == "n":
            fields = ["a", "b"][: 1 + (self.added == len(ADDED))]
            return {one: self.chance.choice([None, 1, 2]) for one in fields}
        return self._text()

    def _literal(self, name: str, value: Any) -> str:
        kind = dict(ADDED).get(name, "STRING")
        if name == "n" and self.added == len(ADDED):
            kind = "STRUCT<a: INT, b: INT>"
            # A row of before the field came has none.
            value = value and {"a": value["a"], "b": value.get("b")}
        if isinstance(value, dict):
            fields = ", ".join(f"'{one}', {'NULL' if it is None else it}" for one, it in value.items())
            return f"CAST(named_struct({fields}) AS {kind})"
        text = "NULL" if value is None else f"'{value}'"
        return f"CAST({text} AS {kind})"

    def _values(self, rows: Rows) -> str:
        return ", ".join(
            f"({', '.join([str(key), *(self._literal(n, row.get(n)) for n in self._columns())])})"
            for key, row in rows.items()
        )

    def _text(self) -> str:
        self.texts += 1
        return f"t{self.texts}"

    def _some(self, at_most: int) -> list[int]:
        return self.chance.sample(sorted(self.rows), min(len(self.rows), self.chance.randint(1, at_most)))

    def _free(self, count: int) -> list[int]:
        return self.chance.sample([key for key in KEYS if key not in self.rows], count)

    def _without(self, keys: Iterable[int]) -> Rows:
        return {key: row for key, row in self.rows.items() if key not in {*keys}}


def _list(keys: Iterable[int]) -> str:
    return ", ".join(map(str, keys))


def contents(rows: Rows) -> dict[int, Any]:
    return {key: content(row) for key, row in rows.items()}


# ---- who follows it ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """The versions of a batch."""

    seq: int
    first: int
    last: int


def follow(
    history: FeedHistory, held: Rows, version: int, deletes: str, keeps: Callable[[Row], bool]
) -> Rows:
    """Return the rows by key behind a version, for a table that had the one before it.

    :param keeps: Whether the load's SELECT lets a row through.
    """
    before, after = history.versions[version - 1] if version else {}, history.versions[version]
    found = dict(held)
    for key in before.keys() - after.keys():
        if deletes == "soft" and keeps(before[key]):
            found[key] = {**before[key], DELETED: True}
        elif deletes in ("apply", "soft") or key in history.moved[version]:
            found.pop(key, None)
    flag = {DELETED: False} if deletes == "soft" else {}
    for key, row in after.items():
        if before.get(key) != row:
            found.pop(key, None)
            if keeps(row):
                found[key] = {**row, **flag}
    return found


def after_batches(
    history: FeedHistory, reads: Iterable[Read], deletes: str, keeps: Callable[[Row], bool]
) -> list[Rows]:
    """Return the rows by key behind each batch."""
    found: list[Rows] = []
    for read in reads:
        held = found[-1] if found else {}
        for version in range(read.first, read.last + 1):
            held = follow(history, held, version, deletes, keeps)
        found.append(held)
    return found


@dataclass(frozen=True)
class Version:
    """A version of a row: the batches in which it came and went."""

    key: int
    row: Row
    begins: int
    ends: int | None


def windows(reads: Iterable[Read], held: Iterable[Rows]) -> list[Version]:
    """Return the versions of all rows, from what there is behind each batch."""
    active: dict[int, Version] = {}
    ended: list[Version] = []
    for read, rows in zip(reads, held, strict=True):
        for key, one in [*active.items()]:
            if key not in rows or content(rows[key]) != content(one.row):
                ended.append(Version(key, one.row, one.begins, read.seq))
                del active[key]
        for key, row in rows.items():
            active.setdefault(key, Version(key, row, read.seq, None))
    return [*ended, *active.values()]
