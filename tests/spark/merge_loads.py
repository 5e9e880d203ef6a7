"""Batches that are merged, and what the table holds then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.spark.conftest import Bench


def merge(strategy: str = "delete-insert", **more: Any) -> dict[str, Any]:
    return {"kind": "merge", "strategy": strategy, **more}


def load(bench: Bench, seq: int, write: dict[str, Any], **columns: Any) -> None:
    bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", **columns)), write=write)


def refused(bench: Bench, seq: int, write: dict[str, Any], **columns: Any) -> Exception:
    return bench.failure(bench.batch(seq, bench.parquet(f"{seq}.parquet", **columns)), write=write)


def stored(bench: Bench, *names: str) -> list[Any]:
    """Return the values of a column, or of several as tuples."""
    values = [tuple(row[name] for name in names) for row in bench.rows()]
    return sorted((one[0] for one in values) if len(names) == 1 else values)
