"""Rules with levels and shares: what each of them does to the rows, to both tables and to the counts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.cli import inspection
from airflow_provider_scope.exceptions import BadRecordError, SqlError
from airflow_provider_scope.expectations import Expectation, RuleCount
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.specs import Merge
from airflow_provider_scope.stores.protocol import open_storage
from tests.spark.quarantined_orders import HEADER, aside, commit_says, killed, orders
from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

UPSERT = Merge(strategy="upsert", primary_key="id")


@pytest.fixture(autouse=True)
def _warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.use(monkeypatch, spark)


def warn(share: float | None = None, predicate: str = "n > 0") -> Expectation:
    return Expectation(predicate, on_violation="warn", max_share=share)


def rules(rule: Expectation | str) -> dict[str, Any]:
    return {"table": {"expect": {"positive": rule, "has id": "id IS NOT NULL"}}}


def land(folder: Path, name: str, first: int, *more: str) -> None:
    """Write ten records of which two break the rule: a number that is too small, and none."""
    lines = [f"{first + n},{['-1', ''][n] if n < 2 else n}" for n in range(10)]
    path = folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["id,n", *lines, *more]))
    os.utime(path, (1e9, 1e9))


def quarantined(table: Path) -> list[tuple[str, int | None]]:
    place = f"{table}_quarantine"
    if not DeltaTable.is_deltatable(place):
        return []
    rows = DeltaTable(place).to_pyarrow_table().to_pylist()
    return sorted(((row["rule"], row["record"]) for row in rows), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad_records", "write"),
    [
        ("fail", UPSERT),
        ("quarantine", "append"),
        pytest.param("fail", "append", marks=pytest.mark.loads),
        pytest.param("quarantine", UPSERT, marks=pytest.mark.loads),
    ],
)
def test_levels_and_shares_of_files(tmp_path, write, bad_records, capsys):
    sorts = bad_records == "quarantine"
    spec = {"roots": f"{tmp_path}/in", "format": "csv", "columns": {"id": "int", "n": "int"}}
    spec |= {"options": {"header": "true"}, "bad_records": bad_records}
    pipe = warm.Pipe(tmp_path, {"source": spec, "write": write})
    land(tmp_path, "a.csv", 0, *["x,1"] * sorts)
    too_many = [warn(0.19), Expectation("n > 0", on_violation="fail")]
    too_many += [Expectation("n > 0", max_share=0.19)] if sorts else ["n > 0"]

    for rule in too_many:
        with pytest.raises(BadRecordError) as caught:
            pipe.run(**rules(rule))
        if getattr(rule, "max_share", None):
            assert "2 of 10 rows (20%) break the rule 'positive' (n > 0)" in caught.value.what
            assert "raise max_share" in caught.value.do
        else:
            words = "a.csv of batch 0 has a record that cannot be loaded (number 1 of the file)"
            assert words in caught.value.what
        assert not DeltaTable.is_deltatable(str(pipe.table))
        assert not (tmp_path / "target_quarantine").exists()

    report = pipe.run(**rules(warn(0.2)))

    assert len(pipe.rows()) == 10
    assert report.warned == {"positive": RuleCount(2, 10)}
    assert "warning: 2 of 10 rows (20%) break the rule 'positive'" in report.text()
    assert report.to_xcom()["warned"] == {"positive": {"count": 2, "out_of": 10}}
    assert quarantined(pipe.table) == [("id is not int", 11)] * sorts

    land(tmp_path, "b.csv", 100)
    at_limit = Expectation("n > 0", on_violation="quarantine", max_share=0.2)
    report = pipe.run(**rules(at_limit if sorts else warn(0.21)))

    assert len(pipe.rows()) == (18 if sorts else 20)
    assert quarantined(pipe.table) == [("id is not int", 11), ("positive", None), ("positive", None)] * sorts
    assert {unit: bad.rules for unit, bad in report.quarantined.items()} == (
        {"rows": {"positive": 2}} if sorts else {}
    )
    assert bool(report.warned) != sorts
    log = CheckpointLog(open_storage(f"file://{pipe.table}"), f"file://{pipe.table}/_checkpoint")
    all_rows = "2 of 10 rows" if sorts else "4 of 20 rows"
    capsys.readouterr()
    inspection._show_counts([log.commit(seq) for seq in log.committed()])
    shown = capsys.readouterr().out.splitlines()
    assert f"warned      {all_rows} (20%) break the rule 'positive'; batches 0 to 1" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "write"),
    [
        pytest.param({"cursor": {"column": "id"}}, "append", id="cursor", marks=pytest.mark.loads),
        pytest.param({"cursor": {"column": "id"}}, {"kind": "scd2", "merge_key": "id"}, id="cursor, scd2"),
        pytest.param({}, "append", id="changes"),
        pytest.param({}, UPSERT, id="changes, merge", marks=pytest.mark.loads),
    ],
)
def test_levels_and_shares_of_other_sources(tmp_path, source, write):
    """A rule that failed them was taken for a failure of Spark, and retried."""
    options = {"configuration": {"delta.enableChangeDataFeed": "true"}}
    values = pa.array([-1, None, *range(2, 10)], pa.int64())
    write_deltalake(f"{tmp_path}/source", pa.table({"id": range(10), "n": values}), **options)
    pipe = warm.Pipe(tmp_path, {"source": {"table": f"{tmp_path}/source", **source}, "write": write})

    for rule in ("n > 0", Expectation("n > 0", on_violation="fail"), warn(0.19)):
        with pytest.raises(BadRecordError, match="the rule 'positive' \\(n > 0\\)") as caught:
            pipe.run(**rules(rule))
        assert '"id":' in str(caught.value)
        assert not DeltaTable.is_deltatable(str(pipe.table))
    report = pipe.run(**rules(warn(0.2)))

    assert len(pipe.rows()) == 10
    assert report.warned == {"positive": RuleCount(2, 10)}
    assert pipe.run(**rules("n > 0")).batches == []


@pytest.mark.slow
def test_after_a_death_and_a_share_that_is_too_large_the_next_try_loads_all_of_it_once(bench, monkeypatch):
    """The try that fails leaves nothing of the one that died, and writes nothing itself."""
    lines = "".join(f"{n},a,{n - 1}.00,2026-01-01\n" for n in range(10))
    entry = bench.batch(0, bench.text("a.csv", f"{HEADER}{lines}x,b,1.00,2026-01-01\n"))
    rule = Expectation("amount > 0", on_violation="quarantine", max_share=0.2)
    killed(bench, monkeypatch, entry, **orders(expect={"positive": rule}))
    assert [row["rule"] for row in aside(bench)] == ["positive", "positive", "nr is not int"]

    strict = Expectation("amount > 0", on_violation="quarantine", max_share=0.1)
    error = bench.failure(entry, **orders(expect={"positive": strict}))

    assert (
        "2 of 10 rows (20%) break the rule 'positive' (amount > 0), which is more than max_share=0.1"
        in error.what
    )
    assert aside(bench) == []
    assert not DeltaTable.is_deltatable(str(bench.table))

    mended = {"positive": Expectation("amount >= 0", on_violation="quarantine", max_share=0.1)}
    mended["early"] = warn(1, "nr < 5")
    version = bench.run(entry, **orders(expect=mended))

    assert version == 0
    assert commit_says(bench)["warned"] == {"early": {"count": 5, "out_of": 10}}
    assert [row["nr"] for row in bench.rows()] == [*range(1, 10)]
    assert [(row["rule"], row["record"]) for row in aside(bench)] == [
        ("positive", None),
        ("nr is not int", 11),
    ]
    assert bench.run(entry, **orders(expect=mended)) is None


def test_what_a_predicate_may_hold(bench):
    """A subquery, a blank in a name, NaN, and a function that is not deterministic."""
    rows = {"a b": [1.0, float("nan"), None, -0.0], "ü": ["x", "'", None, "y"]}
    expect = {
        "blank": warn(None, "`a b` = 0"),
        "nan": warn(None, "NOT isnan(`a b`)"),
        "text": warn(None, "`ü` IN (SELECT explode(array('x', 'y')))"),
        "random": warn(None, "rand() >= 0"),
        "text again": warn(None, "CAST(`ü` AS string) <> ''''"),
        "comment": warn(None, "`a b` = 0 -- none but zero"),
        "comment of all": "true -- always",
    }
    properties = {"delta.columnMapping.mode": "name"}
    bench.run(bench.batch(0, bench.parquet("a", **rows)), expect=expect, properties=properties)

    warned = commit_says(bench)["warned"]
    assert {name: rule["count"] for name, rule in warned.items()} == {
        "blank": 3, "nan": 1, "text": 2, "random": 0, "text again": 2,
        "comment": 3,
    }  # fmt: skip
    assert bench.spark.read.format("delta").load(str(bench.table)).columns == ["a b", "ü"]


@pytest.mark.parametrize(
    "rule", ["id >", "id > 0) OR (true", "id > 0, true", "/* id > 0", warn(None, "id > 0;")]
)
def test_a_rule_that_is_no_sql_is_named_before_anything_is_read(bench, rule):
    batch = bench.batch(0, bench.parquet("a", id=[1]))
    (bench.folder / "landing" / "a").unlink()

    with pytest.raises(SqlError, match=r"^The rule 'wrong' of `expect` ") as caught:
        bench.run_plan(batch, expect={"has id": "id IS NOT NULL", "wrong": rule})
    assert "correct the rule" in caught.value.do


@pytest.mark.parametrize("rule", ["other > 0", "id", warn(None, "count(*) > 0")])
def test_a_rule_that_does_not_fit_the_select_is_named(bench, rule):
    batch = bench.batch(0, bench.parquet("a", id=[1]))
    error = bench.failure(batch, reads=True, expect={"has id": "id IS NOT NULL", "wrong": rule})

    assert str(error).startswith("The rule 'wrong' of `expect` ")
