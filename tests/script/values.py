"""Batches that the tests of the script share."""

from airflow_provider_scope.scope.jobs import BatchIdentity
from airflow_provider_scope.scope.script import ScriptBatch
from airflow_provider_scope.values import FileEntry

IDENTITY = BatchIdentity("7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10", 4, 1)


def batch(**changes) -> ScriptBatch:
    values = {
        "identity": IDENTITY,
        "location": "abfss://lake@account.dfs.core.windows.net/delta/flights",
        "sql": "SELECT id, name, source_file_uri FROM @data",
        "files": (
            FileEntry(1_000, "adl://store.azuredatalakestore.net/landing/a.ss", 2048),
            FileEntry(2_000, "adl://store.azuredatalakestore.net/landing/b.ss", 512),
        ),
        "table_columns": {"id": "long", "name": "string", "source_file_uri": "string"},
        "partition_by": ("name",),
    }
    return ScriptBatch(**(values | changes))
