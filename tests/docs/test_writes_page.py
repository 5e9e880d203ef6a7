"""The tables of the page about writes are what is in a table after these loads, as delta-rs reads it."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.spark.commit import TRIES
from airflow_provider_scope.specs import Replace
from airflow_provider_scope.specs.write import for_plan, write_from
from tests.docs.pages import DOCS, blocks, rows, section
from tests.spark.conftest import Bench

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "writes.md"
HEADINGS = [
    "## Append",
    "## Replace",
    "## Replace(where)",
    "### Delete-insert",
    "### Upsert",
    "### Insert-only",
    "### In the order of the source",
    "## Scd2",
]
EXAMPLE = re.compile(r"(^```python\n(?:(?!```)[^\n]*\n)+```\n)\n((?:^\|[^\n]*\n)+)", re.MULTILINE)


def examples() -> list[Any]:
    """Return each write of the page with the table below it."""
    found = []
    names: dict[str, Any] = {}
    for heading in HEADINGS:
        for number, (python, table) in enumerate(EXAMPLE.findall(section(PAGE, heading))):
            exec(blocks(python)[0].text, names)
            case = f"{heading.strip('# ')}-{number}"
            found.append(pytest.param(write_from(names["write"]), table, id=case))
    return found


def value(cell: str) -> Any:
    if re.fullmatch(r"\d+", cell):
        return int(cell)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", cell):
        return dt.date.fromisoformat(cell)
    return {"NULL": None, "true": True, "false": False}.get(cell, cell)


def loads_and_result(table: str) -> tuple[list[str], dict[str, list[dict[str, Any]]]]:
    """Return the columns, and label -> rows, in the order of the page."""
    _, *columns = [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")]
    found: dict[str, list[dict[str, Any]]] = {}
    for label, *cells in rows(table):
        row = dict(zip(columns, map(value, cells), strict=True))
        found.setdefault(label, []).append({name: one for name, one in row.items() if one != ""})
    return columns, found


def test_each_write_has_its_examples() -> None:
    assert len(examples()) == 14


@pytest.mark.spark
@pytest.mark.parametrize(("write", "table"), examples())
def test_the_rows_of_the_page_are_those_of_the_table(
    spark: Any, tmp_path: Path, write: Any, table: str
) -> None:
    bench = Bench(spark, tmp_path)
    columns, loads = loads_and_result(table)
    result = loads.pop("result")

    for seq, (label, loaded) in enumerate(loads.items()):
        file = bench.parquet(f"{seq}.parquet", **{name: [row[name] for row in loaded] for name in loaded[0]})
        how = for_plan(write)
        if label.startswith("load ") and how:
            how["boundary_timestamp"] = label.removeprefix("load ") + "T00:00:00+00:00"
        entry = bench.batch(seq, file)
        if seq and isinstance(write, Replace):
            entry = bench.batch(
                seq, file, mode="overwrite", where=write.where, refresh_start=seq, overwrite_start=seq
            )
        bench.run(entry, write=how)

    found = DeltaTable(str(bench.table)).to_pyarrow_table().select(columns).to_pylist()
    assert Counter(map(repr, map(plain, found))) == Counter(map(repr, result))


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return instants as the page has them: as days."""
    return {name: one.date() if isinstance(one, dt.datetime) else one for name, one in row.items()}


def test_the_page_knows_how_often_a_batch_is_tried() -> None:
    assert TRIES == 10
    assert "After ten attempts the" in PAGE.read_text()
