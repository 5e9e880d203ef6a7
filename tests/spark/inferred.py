"""Columns that are inferred, and what the batches say of them."""

from __future__ import annotations

import json
from typing import Any

from deltalake import DeltaTable

CSV: dict[str, Any] = {"format": "csv", "options": {"header": "true"}, "infers_columns": True}
JSON: dict[str, Any] = {"format": "json", "infers_columns": True}


def said(bench: Any) -> dict[int, dict[str, Any]]:
    """Return what the commit of each batch says."""
    history = DeltaTable(str(bench.table)).history()
    notes = [json.loads(info.get("userMetadata") or "{}") for info in history]
    return {note["seq"]: note for note in notes if "seq" in note}


def columns_said(bench: Any) -> dict[int, str | None]:
    return {seq: note.get("columns") for seq, note in sorted(said(bench).items())}
