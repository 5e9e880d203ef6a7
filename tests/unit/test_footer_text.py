"""What a parquet file says of its columns as text: a name may hold characters that end a line elsewhere."""

from __future__ import annotations

import pytest

from airflow_provider_scope.spark.files.columnar import _with_nested_nanoseconds

SCHEMA = """\
  optional binary before (STRING);
  optional group {name} {{
    optional int64 at (TIMESTAMP(NANOS,true));
  }}
}}
"""


@pytest.mark.parametrize("name", ["when", "a b", "a\u2028b", "a\u2029b", "a\x85b", "a\x1cb", "a\rb"])
def test_nanoseconds_inside_a_column_are_found_by_its_whole_name(name):
    assert _with_nested_nanoseconds(SCHEMA.format(name=name)) == [name]
