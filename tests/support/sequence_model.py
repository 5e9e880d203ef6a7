"""What a table holds whose rows are in the order of the source: a plain model, which knows no loads.

Events have a key (``id``), a sequence (``at``), whether they delete (``gone``), and by what they are sorted
where that ties (``sort``).
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from tests.support.merge_model import content

BEGIN = datetime(1999, 12, 31, 23, 59, 59, 999_990, tzinfo=UTC)


def newest(made: list[dict[str, Any]], sort: str | None) -> list[list[dict[str, Any]]]:
    """Return for each key the rows of which one may be in the table."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in made:
        groups[event["id"]].append(event)
    left = []
    for group in groups.values():
        rows = [row for row in group if row["at"] == max(one["at"] for one in group)]
        if any(row["gone"] for row in rows):
            continue
        sorts = [row["sort"] for row in rows if row["sort"] is not None]
        if sort and sorts:
            best = max(sorts) if sort == "desc" else min(sorts)
            rows = [row for row in rows if row["sort"] == best]
        left.append(rows)
    return left


def history(
    group: list[dict[str, Any]], tracked: list[str], sort: str | None
) -> list[tuple[dict[str, Any], Any, Any]]:
    """Return the rows of one key in the order of the source, each with its window."""
    by_time: dict[Any, dict[str, Any]] = {}
    for row in sorted(group, key=lambda row: order(row, sort)):
        by_time.setdefault(row["at"], row)  # the first one counts
    rows = [by_time[at] for at in sorted(by_time)]
    made, start = [], None
    for number, row in enumerate(rows):
        before = rows[number - 1] if number else None
        after = rows[number + 1] if number + 1 < len(rows) else None
        if before is None or not is_same(before, row, tracked):
            start = row["at"]
        end = after["at"] if after else None
        if row["gone"]:
            made.append(({"id": row["id"], "at": row["at"]}, row["at"], row["at"]))
        elif after and is_same(row, after, tracked):
            made.append((row, end, end))
        else:
            made.append((row, start, end))
    return made


def is_same(one: dict[str, Any], other: dict[str, Any], tracked: list[str]) -> bool:
    values = [content({name: row[name] for name in tracked}) for row in (one, other)]
    return not one["gone"] and not other["gone"] and values[0] == values[1]


def order(row: dict[str, Any], sort: str | None) -> Any:
    value = row["sort"]
    return (
        not row["gone"],
        sort is not None and value is None,
        0 if sort is None or value is None else value if sort == "asc" else -value,
    )
