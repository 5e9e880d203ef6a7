"""Each odd file gives the right rows or an error that says what to do; with tidy files beside it, too."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.spark import app
from tests.spark.reading_cases import CASES, Case

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark


def same(rows: Any) -> list[str]:
    def text(value: Any) -> str:
        if isinstance(value, datetime) and value.tzinfo:
            return value.astimezone(UTC).isoformat()
        return "NaN" if isinstance(value, float) and math.isnan(value) else repr(value)

    return sorted(str([text(value) for value in row]) for row in rows)


def committed(bench: Bench, case: Case, **changes: Any) -> list[tuple[Any, ...]]:
    path = bench.folder / "landing" / (case.name if "." in case.name else f"{case.name}.{case.format}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(case.bytes)
    bench.run(
        bench.batch(0, bench.entry(path)),
        format=case.format,
        columns=case.columns,
        options=case.options,
        **{**case.plan, **changes},
    )
    return [tuple(row.values()) for row in bench.rows()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.format}: {case.what}")
def test_an_odd_file_gives_its_rows_or_an_error(bench: Bench, case: Case):
    if not isinstance(case.then, str):
        rows = committed(bench, case)
        assert same(rows) == same(case.then)
        return
    with pytest.raises((PySparkException, Py4JJavaError, ScopeProviderError)) as caught:
        committed(bench, case)
    error = caught.value if isinstance(caught.value, ScopeProviderError) else app.as_error(caught.value)
    assert case.then in error.what
    assert not bench.table.exists() or not list(bench.table.glob("_delta_log/*.json"))


@pytest.mark.parametrize(
    ("kind", "text", "where"),
    [
        ("json", '{"a": 1}\n\n{"a": 2}{"a": 3}\n{"a": 4}\n', """(line 3: '{"a": 2}{"a": 3}')"""),
        ("json", '{"a": 1}\n{"a": 2, "a": 3}\n', """(line 2: '{"a": 2, "a": 3}')"""),
        ("csv", "1\n2\n\udce4\n", "(line 3: '\N{REPLACEMENT CHARACTER}')"),
    ],
)
def test_the_error_for_a_file_names_the_line(bench, kind, text, where):
    path = bench.folder / "landing" / "[a].txt"
    path.parent.mkdir()
    path.write_bytes(text.encode(errors="surrogateescape"))
    entry = bench.batch(0, bench.entry(path), bench.text("good", "1\n" if kind == "csv" else '{"a": 1}\n'))

    error = bench.failure(entry, format=kind, columns={"a": "string"})

    assert where in error.what


def test_a_secret_in_a_bad_record_is_hidden(bench):
    entry = bench.batch(0, bench.text("a.csv", "1,account_key=c2VjcmV0\nx,password=hunter2\n"))

    error = bench.failure(entry, format="csv", columns={"a": "int", "b": "string"})

    assert "a is not int: 'x'" in error.what
    assert "hunter2" not in error.what
