"""What SCOPE jobs cannot do, and what is said to those who ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.script import check_scope
from airflow_provider_scope.specs import Merge, Scd2
from airflow_provider_scope.specs.ingest import ingest_from
from tests.support.values import arguments


def made(source: Any = None, **changes: Any) -> Any:
    table = {"columns": {"a": "int"}, **changes.pop("table", {})}
    return ingest_from(
        arguments(
            sql="SELECT a FROM @data",
            engine={"scope_conn_id": "c"},
            source={"roots": ["/in"], **(source or {})},
            table=table,
            **changes,
        )
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": {"columns": None}}, "table.columns=None is not valid: expected the name and type of each"),
        (
            {"write": {"kind": "replace", "where": "a = 1"}},
            "write.where='a = 1' is not possible with SCOPE jobs.",
        ),
        ({"sql_params": {"pin": "1234"}}, "sql_params is not possible with SCOPE jobs."),
        ({"table": {"schema_evolution": "widen"}}, "table.schema_evolution='widen' is not possible"),
        ({"table": {"expect": {"rule": "a > 0"}}}, "table.expect is not possible with SCOPE jobs."),
        ({"source": {"bad_records": "quarantine"}}, "source.bad_records='quarantine' is not possible"),
        (
            {"source": {"format": "csv", "columns": "a int", "rescued_data_column": "_rescued"}},
            "source.rescued_data_column='_rescued' is not possible",
        ),
        (
            {"source": {"format": "csv", "columns": "a int", "options_by_pattern": {"x": {"sep": ";"}}}},
            "source.options_by_pattern is not possible with SCOPE jobs.",
        ),
        ({"source": {"options": {"nullValue": "NA"}}}, "source.options is not possible with SCOPE jobs."),
        ({"source": {"extra_columns": "ignore"}}, "source.extra_columns='ignore' is not possible"),
        ({"source": {"missing_columns": "null"}}, "source.missing_columns='null' is not possible"),
        ({"source": {"format": "csv", "columns": "infer"}}, "source.columns='infer' is not possible"),
        *(
            ({"source": {"format": kind}}, f"source.format={kind!r} is not possible with SCOPE jobs.")
            for kind in ("parquet", "csv", "json", "text", "orc", "avro")
        ),
        ({"write": Merge(primary_key="a")}, "write=Merge(…) is not possible with SCOPE jobs."),
        ({"write": Scd2()}, "write=Scd2(…) is not possible with SCOPE jobs."),
    ],
)
def test_what_scope_jobs_cannot_do_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_scope(made(**changes))

    assert caught.value.what.startswith(message)
    assert caught.value.do
    assert "1234" not in str(caught.value)


def test_what_scope_jobs_can_do_is_let_through() -> None:
    check_scope(made(write="replace"))
    check_scope(made(full_refresh=True, max_batches_per_run=2))
