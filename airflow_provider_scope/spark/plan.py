"""The plan file: what a Spark application is asked to do. The command line names its path."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from airflow_provider_scope.exceptions import CheckpointVersionError
from airflow_provider_scope.sources.cursor.state import CursorRule

FORMAT = 1
_P = TypeVar("_P")
EVENT = "@@airflow-provider-scope "
"""The application's events are lines of its output that start with this; the rest is log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPlan:
    """How the files of the batches are read; see ``specs.FileSource``."""

    format: str
    columns: dict[str, str] | None
    options: dict[str, str]
    extra_columns: str = "fail"
    missing_columns: str = "fail"
    infers_columns: bool = False
    """``columns`` were inferred; None if they are to be, from the first batch that is to run."""
    bad_records: str = "fail"
    max_bad_records: int | None = None
    max_bad_share: float | None = None

    @property
    def has_to_infer(self) -> bool:
        """Whether the columns of the files are to be inferred first."""
        return self.infers_columns and not self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabasePlan:
    """What is asked of a database; see ``specs.JdbcSource``. Where it is, Spark's properties say."""

    kind: str
    """"postgresql", "mysql", "sqlite", or "jdbc": any other one."""
    table: str | None
    query: str | None
    options: dict[str, str]
    zone: str
    partition_column: str | None = None
    num_partitions: int | None = None
    """None lets the application choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorPlan:
    """How the rows of a batch with a cursor are read; see ``specs.TableSource`` and ``specs.JdbcSource``."""

    rule: CursorRule
    table: str = ""
    """URI of a Delta table, or its name in the catalog; of a database, what is read, for people."""
    is_named: bool = False
    pre_filter_sql: str | None = None
    max_rows: int | None = None
    database: DatabasePlan | None = None
    """None is a Delta table."""

    def rule_over(self, column: str) -> CursorRule:
        """Give the rule for the column of a batch, which may have been logged with another one."""
        return replace(self.rule, column=column)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesPlan:
    """How the changes of a batch are read; see ``specs.CdfSource``."""

    table: str
    """URI of a Delta table."""
    deletes: str
    replaces: bool = False
    """Whether a batch takes the place of all rows: then they are those of the source, and no changes."""


SOURCES: dict[str, Any] = {"files": FilesPlan, "cursor": CursorPlan, "changes": ChangesPlan}
"""What a plan calls each kind of its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Batches to run, by number: what they read is in the checkpoint's ``offsets/``."""

    pipeline: str
    table: str
    checkpoint: str
    batches: tuple[int, ...]
    source: FilesPlan | CursorPlan | ChangesPlan | None = None
    """What the reader of the batches has to know of their source; None if it has to know nothing."""
    sql: str = ""
    sql_params: dict[str, Any] = field(default_factory=dict)
    table_columns: dict[str, str] | None = None
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    schema_evolution: str = "fail"
    expect: dict[str, str] = field(default_factory=dict)
    quarantines: tuple[str, ...] = ()
    """The tables that ever took what could not be loaded; the last one does now."""
    write: dict[str, Any] = field(default_factory=dict)
    """The ``kind`` of the write, and what the user says of it; empty is append."""
    first: int = 0
    """The first batch that can be in the table: those below were abandoned before there was one."""
    fence: bool = False
    """Commit empty transactions in place of the batches."""
    empties: bool = False
    """Whether these empty what the batches would replace; else they change no row."""
    format: int = FORMAT

    @property
    def extends_columns(self) -> bool:
        """Whether each batch may add keys to the columns that were inferred."""
        if not isinstance(self.source, FilesPlan) or self.source.extra_columns == "ignore":
            return False
        is_json = self.source.infers_columns and self.source.format == "json"
        return is_json and self.schema_evolution != "fail"

    @property
    def reads_as_table(self) -> bool:
        """Whether what a batch is read as depends on the commits before it."""
        if not isinstance(self.source, FilesPlan):
            return False
        is_text = self.source.format in ("csv", "text")
        return self.extends_columns or (
            not self.source.columns and (self.source.infers_columns or not is_text)
        )

    @property
    def files(self) -> FilesPlan:
        """How files are read, for what reads nothing else.

        :raises TypeError: The batches are of something else.
        """
        return self._source_as(FilesPlan)

    @property
    def cursor(self) -> CursorPlan:
        """How rows are read by a cursor, for what reads nothing else.

        :raises TypeError: The batches are of something else.
        """
        return self._source_as(CursorPlan)

    @property
    def changes(self) -> ChangesPlan:
        """How changes are read, for what reads nothing else.

        :raises TypeError: The batches are of something else.
        """
        return self._source_as(ChangesPlan)

    def _source_as(self, kind: type[_P]) -> _P:
        if not isinstance(self.source, kind):
            msg = f"the batches of {self.checkpoint} are not read by a {kind.__name__}"
            raise TypeError(msg)
        return self.source


def path(first: str, number: int) -> str:
    """Give the path of a plan of an application that has several.

    :param number: How many came before it.
    """
    return f"{first}-{number}" if number else first


def encode(plan: Plan) -> bytes:
    """Give the bytes of a plan file, with every mapping in its order: columns are read by position."""
    value = asdict(plan)
    if plan.source:
        kind = next(name for name, plan_class in SOURCES.items() if isinstance(plan.source, plan_class))
        value["source"] = {"kind": kind, **value["source"]}
    return json.dumps(value, ensure_ascii=False).encode()


def _source(kind: str, **value: Any) -> Any:
    for name, part in (("rule", CursorRule), ("database", DatabasePlan)):
        if value.get(name):
            value[name] = part(**_with_tuples(value[name]))
    return SOURCES[kind](**_with_tuples(value))


def _with_tuples(value: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}


def decode(data: bytes) -> Plan:
    """Read a plan file, which the same version of this package wrote.

    :raises CheckpointVersionError: Another version wrote it.
    """
    value = json.loads(data)
    if value.get("format") != FORMAT:
        raise CheckpointVersionError(
            f"The plan file has format {value.get('format')}; this application reads {FORMAT}.",
            kept="the table and the log; nothing was written",
            do="install the same version of airflow-provider-scope on the worker and where Spark runs",
        )
    value["batches"] = tuple(value["batches"])
    value["quarantines"] = tuple(value["quarantines"])
    value["partition_by"] = tuple(value["partition_by"])
    if source := value["source"]:
        value["source"] = _source(**source)
    return Plan(**value)
