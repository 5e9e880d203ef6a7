"""Groups of a database's cursor, compared with a model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.support.cursor_model import Groups, Model

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.support import warm


def check(
    pipe: warm.Pipe,
    insert: Callable[[Any, Any, int], None],
    values: tuple[list[Any], Any],
    rng: random.Random,
) -> None:
    """Load what is inserted, among it late rows and new groups, and compare it with a model of each group."""
    groups, value_of = values
    cursor = pipe.arguments["source"]["cursor"]
    func, missing = cursor.get("last_value_func", "max"), cursor["on_cursor_value_missing"]
    model = Groups("g", lambda: Model("n", func, None, missing))
    rows: list[dict[str, Any]] = []
    expected = Counter[Any]()
    for load in range(3):
        for _ in range(rng.randrange(4, 12)):
            group = rng.choice([*groups[: 2 * load + 1], None])
            n = None if missing == "exclude" and rng.random() < 0.2 else value_of(rng.randrange(6) + 2 * load)
            rows.append({"g": group, "n": n, "id": len(rows)})
            insert(group, n, len(rows) - 1)
        expected.update(row["id"] for row in model.load(rows))
        pipe.run(max_batches_per_run=20)
        assert Counter(row[0] for row in pipe.rows("id")) == expected, load
