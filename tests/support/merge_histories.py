"""Random histories of row-level writes: a rule, a table, and a few small loads that meet the same keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tests.support.merge_model import Row, same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOADS = 5
"""Loads of a history."""
RULES = (
    "delete-insert",
    "upsert",
    "both keys",
    "scd2",
    "insert-only",
    "scd2 by key",
    "merge key",
    "scd2 by own version",
    "no keys",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of columns, and values that are easily taken for one another."""

    type: pa.DataType
    values: tuple[Any, ...]
    narrower: pa.DataType | None = None
    """Another type that files may have where it holds all values."""
    narrow: Callable[[Any], Any] = lambda value: value
    """Gives a value in the narrower type; the narrower type holds it if it is equal."""


STAMPS = (
    "1900-01-02",
    "1999-12-31T23:59:59.999999",
    "2000-01-01",
    "2000-01-01T00:00:00.000001",
    "9999-12-31",
)
_STAMPS = tuple(datetime.fromisoformat(text) for text in STAMPS)
_TEXTS = ("a", "A", "a ", " a", "", "é", "e\u0301", "ß", "SS", "'\\", "${x}", "NULL", "\uffff", "😀", "a\nb")
_ALIKE = (
    ("a", "A", "a "),
    ("é", "e\u0301"),
    ("ß", "SS", "ss"),
    ("", " ", "NULL"),
    ("x" * 120 + "1", "x" * 120 + "2"),
)
_LONG = tuple("x" * 120 + end for end in ("", "1", "2"))
_DOUBLES = (0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, 1.0, -2.5, 1e300)

TEXT = Kind(pa.string(), _TEXTS + _LONG)
NUMBER = Kind(
    pa.int64(),
    (0, 1, -1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)),
    pa.int32(),
    lambda value: value if abs(value) < 2**31 else None,
)
BOOL = Kind(pa.bool_(), (True, False))
SIMPLE = (
    TEXT,
    NUMBER,
    BOOL,
    Kind(pa.int32(), (0, 7, -7, 2**31 - 1)),
    Kind(
        pa.decimal128(10, 2),
        tuple(map(Decimal, ("0", "1.00", "1.50", "-1.50", "99999999.99"))),
        pa.decimal128(9, 1),
        lambda value: value.quantize(Decimal("0.1")),
    ),
    Kind(pa.decimal128(38, 6), tuple(map(Decimal, ("0", "1e-6", "-1e-6", "1" * 32, "1" * 31 + "2.5")))),
    Kind(pa.float64(), _DOUBLES, pa.float32(), lambda value: float(np.float32(min(max(value, -9.0), 9.0)))),
    Kind(pa.float32(), (0.0, -0.0, math.nan, 0.5)),
    Kind(
        pa.date32(), tuple(map(date.fromisoformat, ("1600-02-29", "1970-01-01", "2024-02-29", "9999-12-31")))
    ),
    Kind(pa.timestamp("us", tz="UTC"), tuple(one.replace(tzinfo=UTC) for one in _STAMPS)),
    Kind(pa.timestamp("us"), _STAMPS),
    Kind(pa.binary(), (b"", b"\x00", b"a", b"A")),
)
_KEYS = (*SIMPLE, *[TEXT] * 6, *[kind for kind in SIMPLE if pa.types.is_floating(kind.type)])
_ONE_FIELD = pa.struct([("x", pa.int64())])
STRUCT = Kind(
    pa.struct([("x", pa.int64()), ("Y", pa.string())]),
    ({"x": 1, "Y": "a"}, {"x": None, "Y": "a"}, {"x": 1, "Y": None}, {"x": None, "Y": None}),
    _ONE_FIELD,
    lambda value: {"x": value["x"]},
)
NESTED = (
    STRUCT,
    Kind(pa.list_(pa.string()), ([], ["a"], ["a", None], [None, "a"])),
    Kind(pa.map_(pa.string(), pa.int64()), ([], [("a", 1)], [("a", 1), ("b", None)], [("b", 2), ("a", 1)])),
    Kind(pa.list_(_ONE_FIELD), ([], [{"x": 1}, None], [{"x": None}])),
)
_PLAIN = (
    "id",
    "Ünï",
    "UPPER",
    "c0",
    "c1",
    "flag",
    "old",
    "old_",
    "n",
    "a.b",
    "k_c0",
    "s",
    "t",
    "t.c0",
    "`q`",
)
_ODD = ("a b.c", "x;y", "p=q", "it's (so)", "a,b", "t{")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    values: tuple[Any, ...]
    """The few values that its rows have."""
    role: str = "value"


@dataclass(frozen=True, slots=True)
class Load:
    """The rows of one batch, and how they are written."""

    rows: list[Row]
    types: dict[str, pa.DataType]
    how: dict[str, Any]
    """As the model takes it, with the names of the table; None is an append before the first merge."""
    argued: dict[str, Any]
    """The same as a user may write it, in other letter cases."""
    overwrites: bool
    boundary: datetime
    names: dict[str, str]
    """Names of the columns -> those in the files, in other letter cases."""


@dataclass
class History:
    """One table: its rule and columns, and the loads, made one after the other."""

    seed: int
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.rule = RULES[self.seed % len(RULES)]
        self.is_scd2 = self.rule.startswith("scd2")
        self.adds = self._chance(0.5)
        self.mapped = self._chance(0.4)
        self.vectors = self._chance(0.4)
        names = [*_PLAIN, *(_ODD if self.mapped else ())]
        self.names = self.random.sample(names, len(names))
        self.columns = self._columns()
        self.extras = (
            [self._column(self.random.choice(SIMPLE + NESTED)) for _ in range(2)] if self.adds else []
        )
        self.partitions = self._partitions()
        self.memory: list[Row] = []
        self.how = self._how()

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    # ---- the table ---------------------------------------------------------------------------------

    def _column(self, kind: Kind, role: str = "value") -> Column:
        few = self.random.sample(
            kind.values,
            min(len(kind.values), self.random.choice([2, 3, 4] if role == "value" else [3, 4, 5])),
        )
        if kind is TEXT and role != "value":
            few = [*self.random.choice(_ALIKE), self.random.choice(_TEXTS)]
        elif 0 in few and pa.types.is_floating(kind.type):
            few += [value for value in kind.values if value == 0]
        return Column(self.names.pop(), kind, tuple(few), role)

    def _columns(self) -> list[Column]:
        keys = {
            "delete-insert": ["primary"],
            "upsert": ["primary"],
            "insert-only": ["primary"],
            "both keys": ["primary", "merge"],
            "merge key": ["merge"],
            "scd2 by key": ["merge"],
            "scd2 by own version": ["version", *(["merge"] if self._chance(0.5) else [])],
        }.get(self.rule, [])
        columns = []
        for role in keys:
            many = (
                1
                if role == "version"
                else self.random.choice([1, 1, 1, 2, 3] if role == "primary" else [1, 1, 2])
            )
            columns += [self._column(self.random.choice(_KEYS), role) for _ in range(many)]
        columns += [
            self._column(self.random.choice(SIMPLE + NESTED)) for _ in range(self.random.choice([1, 2, 3]))
        ]
        if not self.is_scd2:
            if "primary" in keys and self._chance(1.0 if len(keys) > 1 else 0.7):
                columns.append(self._column(self.random.choice(SIMPLE), "sort"))
            if self._chance(0.6):
                kind = self.random.choice([BOOL, BOOL, TEXT, NUMBER])
                columns.append(self._column(kind, "flag"))
        self.random.shuffle(columns)
        return columns

    def _partitions(self) -> list[str]:
        able = [c for c in self.columns if c.kind in SIMPLE and not pa.types.is_binary(c.kind.type)]
        most = len(self.columns) - 1
        if not able or not most or self._chance(0.6):
            return []
        return [c.name for c in self.random.sample(able, min(len(able), most, self.random.choice([1, 1, 2])))]

    def _how(self) -> dict[str, Any]:
        def of(role: str) -> list[str]:
            return [c.name for c in self.columns if c.role == role]

        if self.is_scd2:
            active = self.random.choice([None, None, datetime(9999, 12, 31, tzinfo=UTC)])
            how = {
                "kind": "scd2",
                "merge_key": of("merge"),
                "validity_column_names": self.random.choice([("_valid_from", "_valid_to"), ("Von", "bis")]),
                "active_record_timestamp": active,
                "row_version_column_name": next(iter(of("version")), None),
                "on_empty_extract": self.random.choice(["ignore", "retire"]),
            }
            # An empty extract has no key: with one, it could retire nothing.
            return {**how, "on_empty_extract": "ignore"} if how["merge_key"] else how
        merge_key = of("merge")
        if self.rule == "both keys" and self._chance(0.3):
            merge_key.append(of("primary")[0])
        return {
            "kind": "merge",
            "strategy": self.rule if self.rule in {"upsert", "insert-only"} else "delete-insert",
            "primary_key": of("primary"),
            "merge_key": merge_key,
            "dedup_sort": next(((name, self.random.choice(["asc", "desc"])) for name in of("sort")), None),
            "hard_delete": next(iter(of("flag")), None),
        }

    @property
    def table(self) -> dict[str, Any]:
        """Fields of the ``TableSpec``."""
        properties = {}
        if self.mapped:
            properties["delta.columnMapping.mode"] = "name"
        if self.vectors:
            properties["delta.enableDeletionVectors"] = "true"
        evolution = "add" if self.adds else "fail"
        return {"properties": properties, "partition_by": (*self.partitions,), "schema_evolution": evolution}

    # ---- the loads ---------------------------------------------------------------------------------

    def load(self, number: int) -> Load:
        """Return a load; the first of some histories is one of a table that was appended to so far."""
        columns = [c for c in self.columns if self._is_there(c)] or self.columns[:1]
        if {c.name for c in columns} <= {*self.partitions}:
            columns = [*self.columns]  # one has to be in the files
        columns += [c for c in self.extras if number and self._chance(0.4)]
        self.random.shuffle(columns)
        rows = [
            self._row(columns)
            for _ in range(self.random.choice([0, 1, 2, 3, 4, 6, 12] if number else [6, 9, 12]))
        ]
        rows = self._without_doubles(rows + self._twins(rows))
        keys = [c.name for c in columns if c.role in {"primary", "merge", "version"}]
        if rows and keys and self._chance(0.08):
            self.random.choice(rows)[self.random.choice(keys)] = None
        types = {c.name: self._type(c, rows, may_be_new=number > 0) for c in columns}
        cased = {
            c.name: self.random.choice([c.name, c.name, c.name.upper(), c.name.lower()]) for c in columns
        }
        is_switched = number == 0 and not self.is_scd2 and self._chance(0.2)
        boundary = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(
            hours=self.random.choice([number, number, 0, 9])
        )
        how = {"kind": "append"} if is_switched else self.how
        return Load(
            rows, types, how, self._argued(how, boundary), number > 0 and self._chance(0.1), boundary, cased
        )

    def _twins(self, rows: list[Row]) -> list[Row]:
        """Make another row with the key of one, to lose against it or to win: it may be of another group."""
        if not rows or not self._chance(0.6):
            return []
        keys = [c.name for c in self.columns if c.role == "primary"]
        row, other = self.random.choice(rows), self.random.choice(self.memory)
        others = {name: other.get(name, value) for name, value in row.items()}
        return [{**others, **{name: row[name] for name in keys}}]

    def _is_there(self, column: Column) -> bool:
        optional = self.adds and column.role == "value" and column.name not in self.partitions
        return not (optional and self._chance(0.25))

    def _row(self, columns: Sequence[Column]) -> Row:
        known = self.random.choice(self.memory) if self.memory and self._chance(0.6) else {}
        changed = self.random.choice(columns).name if self._chance(0.5) else None
        row = {}
        for column in columns:
            name = column.name
            row[name] = known[name] if name in known and name != changed else self._value(column)
        self.memory.append(dict(row))
        return row

    def _value(self, column: Column) -> Any:
        if column.role in {"value", "sort", "flag"} and self._chance(0.35 if column.role == "flag" else 0.2):
            return None
        if column.role == "flag" and self._chance(0.5):
            return False if column.kind is BOOL else None
        value = self.random.choice(column.values)
        # Of an empty text in a partition column Delta makes NULL, so it is refused: another test's matter.
        return "a" if value == "" and column.name in self.partitions else value

    def _without_doubles(self, rows: list[Row]) -> list[Row]:
        """Leave out what is refused, in most loads."""
        version = self.how.get("row_version_column_name")
        needs_winner = self.how.get("strategy") in {"upsert", "insert-only"} and not self.how["dedup_sort"]
        key = [version] if version else self.how["primary_key"] if needs_winner else []
        if not key or self._chance(0.1):
            return rows
        return [*{tuple(same(row[name]) for name in key): row for row in rows}.values()]

    def _type(self, column: Column, rows: list[Row], *, may_be_new: bool) -> pa.DataType:
        """Return the type of a column in the files, and change the rows to what that holds."""
        kind, name = column.kind, column.name
        if kind.narrower is None or not self._chance(0.4):
            return kind.type
        values = [row[name] for row in rows if row[name] is not None]
        if kind is STRUCT and self.adds:
            for row in rows:
                row[name] = None if row[name] is None else kind.narrow(row[name])
        elif kind is STRUCT or not may_be_new or column in self.extras or not self._holds(kind, values):
            return kind.type
        return kind.narrower

    def _holds(self, kind: Kind, values: list[Any]) -> bool:
        return all(same(kind.narrow(value)) == same(value) for value in values)

    def _argued(self, how: dict[str, Any], boundary: datetime) -> dict[str, Any]:
        """Return the rule as a user writes it: names in another letter case, instants as text."""
        argued = dict(how)
        for name in ("primary_key", "merge_key"):
            if name in how:
                argued[name] = [one.upper() if self._chance(0.2) else one for one in how[name]]
        if self.is_scd2:
            active = how["active_record_timestamp"]
            argued["active_record_timestamp"] = active and active.replace(tzinfo=None).isoformat()
            if self._chance(0.5):
                argued["boundary_timestamp"] = boundary.isoformat()
        return argued
