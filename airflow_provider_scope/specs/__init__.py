"""What users write: frozen, validated values, or plain dicts of the same fields."""

from airflow_provider_scope.delta.schema import TableSpec
from airflow_provider_scope.delta.write_rules import Merge, Replace, Scd2
from airflow_provider_scope.expectations import Expectation
from airflow_provider_scope.sources.cursor.spec import Cursor, JdbcSource, TableSource
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.specs.dbt_scope import from_dbt_scope
from airflow_provider_scope.specs.engine import ScopeEngine, SparkEngine
from airflow_provider_scope.specs.ingest import Checkpoint

__all__ = [
    "CdfSource",
    "Checkpoint",
    "Cursor",
    "Expectation",
    "FileSource",
    "JdbcSource",
    "Merge",
    "Replace",
    "Scd2",
    "ScopeEngine",
    "SparkEngine",
    "TableSource",
    "TableSpec",
    "from_dbt_scope",
]
