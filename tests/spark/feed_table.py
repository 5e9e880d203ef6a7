"""A Delta table whose change data feed is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import delta_statements, warm

if TYPE_CHECKING:
    from pathlib import Path


KEY = {"kind": "merge", "primary_key": ["id"]}
FEED = {"delta.enableChangeDataFeed": "true"}
ON = "('delta.enableChangeDataFeed' = 'true')"


class Source:
    """A Delta table that is changed by statements, and a pipeline that loads its feed."""

    def __init__(self, spark: Any, folder: Path, columns: str = "id INT, v STRING", **settings: str) -> None:
        self.spark, self.folder = spark, folder
        self.path = folder / "source"
        self.name = f"delta.`{self.path}`"
        properties = {**FEED, **settings}
        if not delta_statements.create(self.path, columns, properties):
            pairs = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
            spark.sql(f"CREATE TABLE {self.name} ({columns}) USING delta TBLPROPERTIES ({pairs})")

    def do(self, *statements: str) -> None:
        for one in statements:
            if not delta_statements.run(self.path, one):
                self.spark.sql(one.replace("@s", self.name))

    def pipe(self, write: Any = KEY, **more: Any) -> warm.Pipe:
        arguments = {n: more.pop(n) for n in ("sql", "table", "full_refresh") if n in more}
        return warm.Pipe(
            self.folder, {"source": {"table": str(self.path), **more}, "write": write, **arguments}
        )
