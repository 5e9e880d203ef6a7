"""Whatever the names of columns, their order is the declared one at the other end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope import validation
from airflow_provider_scope.columns import columns_from, declared
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.plan import Plan
from airflow_provider_scope.specs import FileSource, TableSpec
from tests.support.strategies import UTF8

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = st.text(UTF8.filter(lambda c: c not in "{}%\x00"), min_size=1, max_size=6).filter(
    lambda name: name.strip() and name.lower() != "source_file_uri"
)
TYPES = st.sampled_from(
    ["bigint", "decimal(10,2)", "struct<a:int,b:array<string>>", "map<string, struct<`x,>`: int>>"]
)
COLUMNS = st.lists(st.tuples(NAMES, TYPES), min_size=1, max_size=40, unique_by=lambda c: c[0].lower()).map(
    dict
)


def order(columns: Mapping[str, str] | None) -> list[tuple[str, str]]:
    return list((columns or {}).items())


@given(COLUMNS, COLUMNS)
def test_columns_come_out_of_specs_dicts_and_the_plan_file_in_their_order(
    columns: dict[str, str], table: dict[str, str]
) -> None:
    operator = DeltaIncrementalIngestOperator(
        task_id="ingest",
        delta_location="/table",
        source=FileSource(roots="/in", format="csv", columns=columns),
        table={"columns": table},
    )
    ingest = operator.ingest()
    assert ingest
    plan = Plan(
        pipeline="p",
        table="file:///table",
        checkpoint="file:///table/_checkpoint",
        batches=(0,),
        source=ingest.source,
        sql=ingest.sql,
        sql_params={},
        spec=ingest.table,
    )

    read = plans.decode(plans.encode(plan))

    assert order(read.files.columns) == order(columns)
    assert order(read.table_columns) == order(table)


@given(COLUMNS)
def test_columns_are_the_same_as_a_mapping_as_pairs_and_as_text(columns: dict[str, str]) -> None:
    text = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())
    forms = (columns, list(columns.items()), [list(pair) for pair in columns.items()], text)

    for form in forms:
        assert order(columns_from("columns", form)) == order(columns)
        spec = TableSpec(columns=json.loads(json.dumps(form)))
        assert order(
            declared(validation.from_dict(TableSpec, "table", validation.to_dict(spec)).columns)
        ) == (order(columns))
