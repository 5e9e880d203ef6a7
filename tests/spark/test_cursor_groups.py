"""A cursor with ``per`` loads what as many cursors would, each over the rows of one group alone."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import CursorError
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.specs import Cursor
from tests.spark.cursor_cases import KINDS, SEEDS, counted, lag_of
from tests.support import merge_model, warm
from tests.support.cursor_model import Groups, Model, Replay
from tests.support.sequence_model import history, newest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.compiled]
LOADS = 4

GROUPS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "=", "a", "a ", "A", "é", "é", "\"'\\", "null", "a\0b"]),
    "int": (pa.int32(), [0, -1, 2**31 - 1, 10]),
    "decimal": (pa.decimal128(38, 0), [Decimal(0), Decimal(10) ** 37, Decimal(-1)]),
    "date": (pa.date32(), [date(1600, 2, 29), date(9999, 12, 31)]),
    "bool": (pa.bool_(), [True, False]),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_each_load_takes_what_a_cursor_of_each_group_would(spark: Any, tmp_path: Path, seed: int) -> None:
    """Groups that come later, late rows, equal ones, and changed ones, and no group of the others' values."""
    rng = random.Random(f"groups {seed}")
    kinds, groups = [*KINDS], [*GROUPS]
    kind = kinds[seed % len(kinds)]
    arrow, value_of, shift = KINDS[kind]
    group_type, group_values = GROUPS[groups[seed % len(groups)]]
    func = rng.choice(["max", "min"])
    missing = rng.choice(["include", "exclude"])
    dedup = rng.choice([None, None, ("id",), ()])
    lag = shift if shift is not None and rng.random() < 0.5 else None
    initial = value_of(rng.randrange(6)) if rng.random() < 0.3 else None
    is_open = lag is None and not dedup and rng.random() < 0.3
    # A few groups have their rows in the state, many have them in a folder beside it.
    is_large = seed % 3 == 0
    cursor = Cursor(
        column="The Cursor",
        per="a Group" if seed % 2 else "nested.a group",
        last_value_func=func,
        lag=None if lag is None else lag_of(lag),
        on_cursor_value_missing=missing,
        dedup_key=dedup,
        initial_value=initial,
        range_start="open" if is_open else "closed",
    )
    model = Groups("a Group", lambda: Model("The Cursor", func, lag, missing, dedup, initial, is_open))
    replay = Replay(spark, tmp_path, cursor)
    rows: list[dict[str, Any]] = []
    for load in range(LOADS):
        for _ in range(rng.randrange(300) if is_large else rng.randrange(12)):
            group = rng.choice([*group_values[: load + 1], None])
            value = None if rng.random() < 0.1 else value_of(rng.randrange(8) + load)
            row = {
                "t": rng.choice(["a", None]),
                "The Cursor": value,
                "id": rng.randrange(5),
                "a Group": group,
            }
            rows.append(row)
        for row in rng.sample(rows, len(rows) // 4):
            rows.append(dict(row)) if rng.random() < 0.4 else row.update(t=rng.choice(["c", "d"]))
        for row in rng.sample(rows, len(rows) // 8):
            rows.remove(row)
        rng.shuffle(rows)
        columns = [("t", pa.string()), ("The Cursor", arrow), ("id", pa.int64()), ("a Group", group_type)]
        source = pa.Table.from_pylist(rows, pa.schema(columns))
        if not seed % 2:
            of_group = pa.StructArray.from_arrays([source["a Group"].combine_chunks()], ["a Group"])
            source = source.drop(["a Group"]).append_column("nested", of_group)
        expected = model.load(rows)
        found = [flat(row) for row in replay.load(source)]

        drawn = (seed, kind, load, func, missing, dedup, lag, initial, is_open)
        assert counted(found) == counted(expected), drawn


def flat(row: dict[str, Any]) -> dict[str, Any]:
    nested = row.pop("nested", None)
    return row | ({"a Group": nested["a Group"]} if nested else {})


@pytest.mark.slow
def test_runs_take_each_row_once_though_a_worker_dies_between_them(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a Delta table with CHAR as the group: late rows of one group are new ones of another; by batches."""
    warm.use(monkeypatch, spark)
    source = tmp_path / "source"
    spark.sql(f"CREATE TABLE delta.`{source}` (g CHAR(4), n INT, id INT) USING delta")
    table = {"table": str(source), "cursor": {"column": "n", "per": "g"}, "max_rows_per_batch": 7}
    pipe = warm.Pipe(tmp_path / "own", {"source": table})
    rng, ids = random.Random("groups"), 0
    groups, expected = ["a", "ab", "A"], Counter[Any]()
    lasts: dict[Any, int] = {}
    for turn in range(2):
        rows = []
        for group in [*groups[: turn + 2], None]:
            for _ in range(rng.randrange(2, 6)):
                ids += 1
                rows.append((group, lasts.get(group, -50 * len(rows)) + rng.randrange(3), ids))
            lasts[group] = max(n for g, n, _ in rows if g == group)
        expected.update((g if g is None else g.ljust(4), n, i) for g, n, i in rows)
        late = min(n for _, n, _ in rows) - 100  # before the last value of each group that is known
        if turn:
            rows.append((groups[0], late, 1000 + turn))
        rng.shuffle(rows)
        spark.createDataFrame(rows, "g string, n int, id int").write.format("delta").mode("append").save(
            str(source)
        )
        with monkeypatch.context() as patch:
            dying_after(patch, batches=1)
            with pytest.raises(KeyboardInterrupt):
                pipe.run()
        pipe.run(max_batches_per_run=10)
        assert pipe.run().batches == []

        assert Counter(pipe.rows("g", "n", "id")) == expected

    state = cursor_state.decode(json.dumps(pipe.state()), "the test")
    assert state is not None
    assert {group.key: int(group.last) for group in state.groups} == {
        "" if group is None else f"={group.ljust(4)}": last for group, last in lasts.items()
    }
    assert cursor_state.reached_text(state) == (
        f"values from {min(lasts.values())} to {max(lasts.values())} in 4 groups of g"
    )
    # A version that adds no row is told without Spark; one that does, is not: the group may be a new one.
    DeltaTable(str(source)).optimize.compact()
    assert pipe.run().why_nothing().endswith(f"nothing newer in version 3 of file://{source}")


def dying_after(patch: pytest.MonkeyPatch, batches: int) -> None:
    """Let the worker die when the table has a batch, and its record does not say so."""
    run_plan, counts = warm.SessionEngine.run_plan, Counter[str]()

    def dying(self: warm.SessionEngine, plan: Any) -> None:
        run_plan(self, plan)
        counts["plans"] += 1
        if counts["plans"] == batches:
            raise KeyboardInterrupt

    patch.setattr(warm.SessionEngine, "run_plan", dying)


SCD2: dict[str, Any] = {"kind": "scd2", "merge_key": ["id"]}
UPSERT: dict[str, Any] = {"kind": "merge", "strategy": "upsert", "primary_key": ["id"]}
IN_ORDER = {"sequence_by": "AT", "hard_delete": "gone"}
CASES: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    "scd2, in order": ("text", "timestamp", {**SCD2, **IN_ORDER}, {"max_rows_per_batch": 9}),
    "merge, in order": ("decimal", "bigint", {**UPSERT, **IN_ORDER}, {"max_rows_per_batch": 9}),
    "merge": ("bool", "decimal", {**UPSERT, "dedup_sort": ["at", "desc"]}, {"lag": 0.000003}),
    "scd2": ("int", "date", {**SCD2, "merge_key": ["id", "g"]}, {"range_start": "open"}),
    "append": ("date", "text", "append", {"dedup_key": ["id", "text"], "last_value_func": "min"}),
    "replace": ("text", "ntz", "replace", {"initial_value": KINDS["ntz"][1](9)}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "loads"),
    [("merge", 3), *(pytest.param(case, 5, marks=pytest.mark.loads) for case in CASES)],
)
def test_each_write_gets_the_rows_of_the_cursors_of_all_groups(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, loads: int
) -> None:
    """Keys that move between groups, groups that vanish and come back, a worker that dies; mapped columns."""
    warm.use(monkeypatch, spark)
    rng, (group_kind, kind, write, options) = random.Random(case), CASES[case]
    (group_type, groups), (arrow, value_of, shift) = GROUPS[group_kind], KINDS[kind]
    columns = [("id", pa.int64()), ("g", group_type), ("at", arrow), ("text", pa.string())]
    schema, mapped = pa.schema([*columns, ("gone", pa.bool_())]), {"delta.columnMapping.mode": "name"}
    options = dict(options)
    outer = {name: options.pop(name) for name in ("max_rows_per_batch",) if name in options}
    cursor = {"column": "At", "per": "G", "on_cursor_value_missing": "exclude", **options}
    source = {"table": str(tmp_path / "source"), "cursor": cursor, **outer}
    pipe = warm.Pipe(tmp_path, {"source": source, "write": write, "table": {"properties": mapped}})
    model = Groups(
        "g",
        lambda: Model(
            "at",
            options.get("last_value_func", "max"),
            shift if "lag" in options else None,
            "exclude",
            options.get("dedup_key") and tuple(options["dedup_key"]),
            options.get("initial_value"),
            options.get("range_start") == "open",
        ),
    )
    rows: list[dict[str, Any]] = []
    taken: list[dict[str, Any]] = []
    stored: list[dict[str, Any]] | None = None
    used = set[Any]()
    no_group = [] if case == "scd2" else [None]  # there, the group is a part of the key
    limit = {"max_batches_per_run": None if write == "replace" else 20}
    for load in range(loads):
        for _ in range(18):
            key, at = rng.randrange(9), None if rng.random() < 0.1 else value_of(rng.randrange(25) + 5 * load)
            if kind != "text" and at is not None and (key, at) in used:
                continue  # which of two rows of a key counts is said by their order alone
            used.add((key, at))
            group, gone = (
                rng.choice([*groups[: 2 * load + 2], *no_group]),
                rng.choice([None, False, False, True]),
            )
            texts = {"text": rng.choice(["a", "b", None]), "gone": gone, "sort": None}
            rows.append({"id": key, "g": group, "at": at, **texts})
        away = rng.choice([*groups, None]) if load in (1, 2) else "stay"
        present = [row for row in rows if row["g"] != away]
        pq.write_table(pa.Table.from_pylist(present, schema), tmp_path / "rows.parquet")
        made = spark.read.parquet(str(tmp_path / "rows.parquet")).write.format("delta").mode("overwrite")
        made.option("delta.columnMapping.mode", "name").save(source["table"])

        of_load = model.load(present)
        taken += of_load
        boundary = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(load)
        changes = {"write": {**write, "boundary_timestamp": boundary}} if case == "scd2" else {}
        if load % 2:
            with monkeypatch.context() as patch:
                dying_after(patch, batches=1)
                with pytest.raises(KeyboardInterrupt):
                    pipe.run(**limit, **changes)
        pipe.run(**limit, **changes)
        stored = after(pipe.arguments["write"], stored, of_load, taken, boundary)
        if write == "replace":
            stored = [row for row in present if row["at"] is not None and row["at"] >= value_of(9)]
        names = [*schema.names, *(("_valid_from", "_valid_to") if "scd2" in case else ())]
        found = [dict(zip(names, row, strict=True)) for row in pipe.rows(*names)]
        assert counts_of(found) == counts_of(stored), load


def counts_of(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(merge_model.content(row) for row in rows)


def after(
    write: Any,
    stored: list[dict[str, Any]] | None,
    of_load: list[dict[str, Any]],
    taken: list[dict[str, Any]],
    boundary: datetime,
) -> list[dict[str, Any]]:
    """Return what the table holds, by the plain model of its write."""
    keys = defaultdict[int, list[dict[str, Any]]](list)
    for row in taken:
        keys[row["id"]].append(row)
    if not isinstance(write, dict):
        return taken
    is_merge, is_in_order = write["kind"] == "merge", "sequence_by" in write
    if is_merge and is_in_order:
        return [row for rows in newest(taken, None) for row in rows[:1]]
    if is_in_order:
        windows = [version for rows in keys.values() for version in history(rows, ["text", "g"], None)]
        return [{**row, "_valid_from": start, "_valid_to": end} for row, start, end in windows]
    if is_merge:
        how = {"merge_key": (), "hard_delete": None, **write}
        return merge_model.merge(stored, of_load, how, lambda rows: rows[0])
    how = {"validity_column_names": ("_valid_from", "_valid_to"), "active_record_timestamp": None}
    how |= {"row_version_column_name": None, "on_empty_extract": "ignore", **write}
    return merge_model.scd2(stored, of_load, how, boundary)


def test_what_is_not_possible_is_refused_before_a_row_is_written(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm.use(monkeypatch, spark)
    source = tmp_path / "source"
    columns = {"n": pa.array([1, 2, 3], pa.int32()), "g": ["a", "b", None], "f": [1.5, 2.0, -0.0]}
    columns |= {"at": [datetime(2026, 1, n, tzinfo=UTC) for n in (1, 2, 3)], "d": [Decimal("1.0")] * 3}
    write_deltalake(str(source), pa.table(columns))

    def pipe(**cursor: Any) -> warm.Pipe:
        return warm.Pipe(tmp_path, {"source": {"table": str(source), "cursor": {"column": "n", **cursor}}})

    with pytest.raises(
        CursorError, match=re.escape("cursor.per is 'absent', and there is no such column: n, g, f, at, d")
    ):
        pipe(per="absent").run()
    for per, kind in (("f", "double"), ("at", "timestamp"), ("d", "decimal(2,1)")):
        with pytest.raises(CursorError, match=re.escape(f"cursor.per={per!r} has the type {kind}")):
            pipe(per=per).run()
    with monkeypatch.context() as patch:
        patch.setattr(cursor_state, "MOST_GROUPS", 2)
        with pytest.raises(CursorError, match=re.escape("cursor.per='g' has more than 2 values")):
            pipe(per="g").run()
        patch.setattr(cursor_state, "MOST_GROUPS", 3)
        pipe(per="g").run()
        write_deltalake(
            str(source),
            pa.table({**columns, "n": pa.array([0, 2, 3], pa.int32()), "g": ["a", "c", "d"]}),
            mode="append",
        )
        with pytest.raises(CursorError, match="has more than 3 values"):
            pipe(per="g").run()
    assert len(pipe().rows()) == 3
    pipe(per="g").run()
    assert len(pipe().rows("n", "g")) == 5  # of a known group nothing before its last value, of new ones all
    write_deltalake(str(source), pa.table({**columns, "g": ["x" * 201, "a", "b"]}), mode="append")
    with pytest.raises(CursorError, match="of 201 characters; a group has at most 200"):
        pipe(per="g").run()
    for change in ({}, {"per": "f"}):
        with pytest.raises(CursorError, match=re.escape("known with cursor.per='g'")):
            pipe(**change).run()


@pytest.mark.slow
@pytest.mark.parametrize("cursor", [{"column": "n", "per": "g"}, {"column": "g"}])
def test_text_that_a_state_cannot_hold_is_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cursor: dict[str, str]
) -> None:
    """Else the row would be new in each load: the state had a replacement character for its last byte."""
    warm.use(monkeypatch, spark)
    source = str(tmp_path / "source")
    rows = spark.sql("SELECT 1 AS n, CAST(X'61FF' AS STRING) AS g UNION ALL SELECT 2, 'b'")
    rows.write.format("delta").save(source)
    with pytest.raises(CursorError, match="1 row has bytes that are not UTF-8 in 'g', such as"):
        warm.Pipe(tmp_path, {"source": {"table": source, "cursor": cursor}}).run()


@pytest.mark.slow
@pytest.mark.parametrize("most", [500, pytest.param(10_000, marks=pytest.mark.loads)])
def test_load_has_a_cursor_for_each_group_and_for_no_more_than_a_state_holds(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    from airflow_provider_scope.spark import load

    monkeypatch.setattr(cursor_state, "MOST_GROUPS", most)
    cursor, target = Cursor(column="n", per="g"), str(tmp_path / "target")

    def load_numbers(groups: int, *numbers: int) -> int:
        # Of one of them there is no value, and the others have keys of several bytes.
        group = "if(id = 7, NULL, concat('\u00e9\\0', id)) AS g"
        source = spark.range(groups).selectExpr(
            group, f"explode(transform(array{numbers}, n -> n - id)) AS n"
        )
        return load(spark, source, target, cursor=cursor).inserted

    assert load_numbers(most, 5, 6) == 2 * most
    assert load_numbers(most, 5, 6, 7) == most
    with pytest.raises(CursorError, match=f"has more than {most:,} values"):
        load_numbers(most + 1, 7, 8)
    rows = DeltaTable(target).to_pyarrow_table().to_pylist()
    assert Counter((row["g"], row["n"]) for row in rows) == Counter(
        (None if id_ == 7 else f"\u00e9\0{id_}", number - id_) for id_ in range(most) for number in (5, 6, 7)
    )
