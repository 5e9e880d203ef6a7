"""Orders in CSV files, some of them bad, and what the quarantine holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.spark.target import Target

ASIDE = {"bad_records": "quarantine"}
ORDERS = {"nr": "int", "article": "string", "amount": "decimal(10,2)", "day": "date"}


def orders(**changes: Any) -> dict[str, Any]:
    return {"format": "csv", "columns": ORDERS, "options": {"header": "true"}, **ASIDE, **changes}


def aside(bench: Any) -> list[dict[str, Any]]:
    rows = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table().to_pylist()
    for row in rows:
        row["file"] = row["file"] and row["file"].rpartition("/")[2]
        assert row.pop("pipeline") == bench.plan.pipeline
        assert row.pop("quarantined_at")
    return sorted(rows, key=lambda row: (row["batch"], row["file"] or "", row["record"] or 0))


def commit_says(bench: Any) -> dict[str, Any]:
    (newest,) = DeltaTable(str(bench.table)).history(1)
    return json.loads(newest["userMetadata"])


HEADER = "nr,article,amount,day\n"


class DiedError(Exception):
    """In place of a kill."""


def killed(bench: Any, monkeypatch: Any, entry: Any, **plan: Any) -> None:
    with monkeypatch.context() as patched:
        real = Target.write

        def die(target: Target, transaction: Any, rows: Any, notes: Any = None) -> Any:
            if not notes:  # the write of a batch in which nothing is bad
                return real(target, transaction, rows)
            raise DiedError

        patched.setattr(Target, "write", die)
        with pytest.raises(DiedError):
            bench.run(entry, **plan)
