"""Rows in the order of the source: random histories of many keys, cut into loads at random and in any order.

Each key has a history of its own, so a few loads are hundreds of them. What is in the table is compared with
a plain model, which knows no loads; ``make test-loads`` has more seeds. To replay one:
``SEQUENCE_SEED=17 .venv/bin/pytest <this file>``.
"""

from __future__ import annotations

import os
from collections import defaultdict
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.merge_model import content
from tests.support.sequence_model import BEGIN, history, newest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("SEQUENCE_SEED", "1"))
KEYS = int(os.environ.get("SEQUENCE_KEYS", "150"))
LOADS = 3
SEEDS = pytest.mark.parametrize(
    "seed", [SEED, *(pytest.param(SEED + more, marks=pytest.mark.loads) for more in (1, 2))]
)

SEQUENCES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "timestamp": (pa.timestamp("us", tz="UTC"), lambda n: BEGIN + timedelta(microseconds=n)),
    "timestamp_ntz": (pa.timestamp("us"), lambda n: BEGIN.replace(tzinfo=None) + timedelta(microseconds=n)),
    "date": (pa.date32(), lambda n: date(1582, 10, 1) + timedelta(days=n)),
    "bigint": (pa.int64(), lambda n: 2**53 + n),
    "decimal": (pa.decimal128(38, 9), lambda n: Decimal(n - 9) / 10**9),
}
TEXTS = ("a", "A", "", None, "é")
NUMBERS = (0.0, -0.0, 1.5, float("nan"), None)
LISTS = ([], [None], ["x"], None)
STRUCTS = ({"x": 1}, {"x": None}, None)
KINDS = {
    "id": pa.int64(),
    "text": pa.string(),
    "number": pa.float64(),
    "list": pa.list_(pa.string()),
    "struct": pa.struct([("x", pa.int64())]),
    "sort": pa.int64(),
    "gone": pa.bool_(),
}


def events(
    chance: Random, at: Callable[[int], Any], *, ties: bool, deletes: float = 0.0
) -> list[dict[str, Any]]:
    """Make the events of all keys.

    :param ties: Whether rows of one key and sequence may differ; else such rows are repetitions, or deletes.
    :param deletes: The share of events that are deletes; some of these tie with a row.
    """
    made: list[dict[str, Any]] = []
    for key in range(KEYS):
        count = chance.choice([1, 2, 3, 5, 8])
        numbers = chance.sample(range(20), count)
        if ties:
            numbers += chance.choices(numbers, k=chance.choice([0, 1, 2]))
        for number in numbers:
            row = {"text": chance.choice(TEXTS), "number": chance.choice(NUMBERS)}
            row |= {"list": chance.choice(LISTS), "struct": chance.choice(STRUCTS)}
            row |= {"id": key, "at": at(number), "sort": chance.choice([None, 1, 2, 3])}
            is_gone = chance.random() < deletes
            made.append({**row, "gone": True} if is_gone else {**row, "gone": chance.choice([False, None])})
            if is_gone and chance.random() < 0.2:
                made.append({**row, "gone": False})
    return made + chance.choices(made, k=len(made) // 5)


def cut(chance: Random, made: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Put each event into one of the loads, in any order."""
    loads: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in chance.sample(made, len(made)):
        loads[chance.randrange(LOADS)].append(event)
    return [loads[number] for number in range(LOADS)]


def load(
    bench: Bench, seq: int, rows: list[dict[str, Any]], kinds: dict[str, pa.DataType], **how: Any
) -> None:
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", **columns)), **how)


def read(bench: Bench) -> list[dict[str, Any]]:
    return DeltaTable(str(bench.table)).to_pyarrow_table().to_pylist()


def differences(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Return the rows of each key that only one of both sides has."""
    sides = [{content(row) for row in rows} for rows in (found, expected)]
    assert len(found) == len(sides[0])
    assert len(expected) == len(sides[1])
    return [row for row in found if content(row) not in sides[1]], [
        row for row in expected if content(row) not in sides[0]
    ]


@pytest.mark.slow
@SEEDS
@pytest.mark.parametrize(
    ("kind", "sort", "deletes"),
    [
        ("timestamp_ntz", None, 0.7),
        *(
            pytest.param(*case, marks=pytest.mark.loads)
            for case in [
                ("timestamp", None, 0.0),
                ("decimal", "desc", 0.0),
                ("date", "asc", 0.3),
                ("bigint", None, 0.3),
            ]
        ),
    ],
)
def test_a_merge_leaves_the_newest_row_of_each_key_whatever_the_loads(
    bench: Bench, kind: str, sort: str | None, deletes: float, seed: int
) -> None:
    chance = Random(f"{seed} {kind} {sort}")
    of_sequence, at = SEQUENCES[kind]
    made = events(chance, at, ties=sort is not None, deletes=deletes)
    kinds = {**KINDS, "at": of_sequence}
    write = {
        "kind": "merge",
        "strategy": chance.choice(["upsert", "delete-insert"]),
        "primary_key": ["ID"],
        "sequence_by": "At",
        "dedup_sort": sort and ["sort", sort],
        "hard_delete": "gone" if deletes else None,
    }
    tables = []
    # Two cuts of the same events where rows tie: of these the model does not say which one counts.
    for turn in range(2 if sort else 1):
        bench.table = bench.folder / f"table{turn}"
        how = {"table": f"file://{bench.table}", "write": write}
        for seq, rows in enumerate(cut(chance, made)):
            load(bench, seq, rows, kinds, **how)
        tables.append(read(bench))

    assert differences(tables[0], tables[-1]) == ([], [])
    by_key = {row["id"]: content(row) for row in tables[0]}
    expected = newest(made, sort)
    assert len(by_key) == len(tables[0]) == len(expected)
    assert len(expected) == KEYS or deletes
    assert len(expected) > KEYS // 5
    wrong = [rows for rows in expected if by_key[rows[0]["id"]] not in {content(row) for row in rows}]
    assert wrong == []


@pytest.mark.slow
@SEEDS
@pytest.mark.parametrize(
    ("kind", "sort", "deletes", "tracked"),
    [
        ("decimal", None, 0.4, ["number", "Text"]),
        *(
            pytest.param(*case, marks=pytest.mark.loads)
            for case in [
                ("timestamp", None, 0.2, []),
                ("bigint", None, 0.0, ["text"]),
                ("date", "desc", 0.2, ["list"]),
                ("timestamp_ntz", "asc", 0.2, ["struct"]),
            ]
        ),
    ],
)
def test_scd2_has_one_history_whatever_the_loads(
    bench: Bench, kind: str, sort: str | None, deletes: float, *, tracked: list[str], seed: int
) -> None:
    chance = Random(f"{seed} scd2 {kind} {sort}")
    of_sequence, at = SEQUENCES[kind]
    made = events(chance, at, ties=False, deletes=deletes)
    if sort:  # rows that tie, each with a place of its own
        made = [{**row, "sort": place} for row in made for place in chance.sample([None, 1, 2, 3], 2)]
    write = {
        "kind": "scd2",
        "merge_key": ["ID"],
        "sequence_by": "AT",
        "track_history_columns": tracked,
        "dedup_sort": sort and ["sort", sort],
        "hard_delete": "gone" if deletes else None,
    }
    for seq, rows in enumerate(cut(chance, made)):
        load(bench, seq, rows, {**KINDS, "at": of_sequence}, write=write)
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in made:
        groups[event["id"]].append(event)
    names = [name.lower() for name in tracked] or ["text", "number", "list", "struct", "sort"]
    expected = [
        {**row, "_valid_from": start, "_valid_to": end}
        for group in groups.values()
        for row, start, end in history(group, names, sort)
    ]
    found = [{name: value for name, value in row.items() if name != "_row_hash"} for row in read(bench)]
    assert differences(found, expected) == ([], [])
