"""The tables of the page about reading are the cases that are run."""

from __future__ import annotations

import pytest

from tests.docs.pages import DOCS, rows, section
from tests.spark.reading_cases import AVRO, CSV, JSON, ORC, PARQUET, TEXT, VALUES, Case

PAGE = DOCS / "reading.md"
TABLES = {
    "CSV": CSV,
    "Values in text": VALUES,
    "JSON": JSON,
    "Parquet": PARQUET,
    "ORC": ORC,
    "Avro": AVRO,
    "Text": TEXT,
}


def outcome(case: Case) -> str:
    return f"error: {case.then}" if isinstance(case.then, str) else "loaded"


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_lists_the_cases_that_are_run_with_their_outcome(heading: str):
    expected = [[case.what, outcome(case)] for case in TABLES[heading]]

    assert rows(section(PAGE, f"## {heading}")) == expected
