"""The plan file: what a Spark application is asked to do. The command line names its path."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from airflow_provider_scope.columns import declared, with_hints
from airflow_provider_scope.delta.schema import TableSpec
from airflow_provider_scope.exceptions import CheckpointVersionError
from airflow_provider_scope.expectations import expectations
from airflow_provider_scope.sources import AnySource
from airflow_provider_scope.sources.cursor.spec import JdbcSource, TableSource
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.files.spec import FileSource

if TYPE_CHECKING:
    from airflow_provider_scope.expectations import Expectation, Level
    from airflow_provider_scope.sources.spec import SourceSpec

FORMAT = 1
_S = TypeVar("_S")
EVENT = "@@airflow-provider-scope "
"""The application's events are lines of its output that start with this; the rest is log."""
MORE = "more"
"""The argument that lets the application wait for further plans."""
REPORT = "report"
"""The argument that lets it write its events beside its plan, too: nobody reads its output."""

SERVER_CONNECTION = "AIRFLOW_PROVIDER_SCOPE_SERVER"
"""The environment variable with the number of an open connection to a server that lends a session."""

_SOURCES: dict[str, Any] = {kind.__name__: kind for kind in get_args(AnySource)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Batches to run, by number: what they read is in the checkpoint's ``offsets/``."""

    pipeline: str
    table: str
    checkpoint: str
    batches: tuple[int, ...]
    source: SourceSpec | None = None
    """As the user wrote it, with canonical URIs of its folders; None if its readers need nothing of it."""
    inferred_columns: dict[str, str] | None = None
    """With ``columns="infer"``: those of the batches before; None if the first one is to tell them."""
    replaces: bool = False
    """Whether each batch takes the place of all rows: then a feed gives its source's rows, and no changes."""
    sql: str = ""
    sql_params: dict[str, Any] = field(default_factory=dict)
    spec: TableSpec = field(default_factory=TableSpec)
    """As the user wrote it; its columns are with those that the write adds."""
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
    reads_only: bool = False
    """Only read and check the batches, as a run does, and write what was found beside the plan."""
    format: int = FORMAT

    @property
    def infers_columns(self) -> bool:
        """Whether the types of the files' columns are inferred from the first batch."""
        return self.source is not None and self.source.infers_columns

    @property
    def has_to_infer(self) -> bool:
        """Whether the columns of the files are to be inferred first."""
        return self.infers_columns and not self.inferred_columns

    @property
    def file_columns(self) -> dict[str, str] | None:
        """The columns of the files, declared or inferred; None if the files tell them."""
        if not self.infers_columns:
            return declared(self.files.columns)
        return with_hints(self.inferred_columns, self.hints) if self.inferred_columns else None

    @property
    def hints(self) -> dict[str, str]:
        """The types that ``schema_hints`` says."""
        return declared(self.files.schema_hints) or {}

    @property
    def has_quarantine(self) -> bool:
        """Whether what cannot be loaded is put aside."""
        return self.source is not None and self.source.puts_bad_records_aside

    @property
    def table_columns(self) -> dict[str, str] | None:
        """The declared columns of the table."""
        return declared(self.spec.columns)

    @property
    def schema_evolution(self) -> str:
        """What happens with columns and types that the table does not have."""
        return self.spec.schema_evolution

    @property
    def expect(self) -> dict[str, Expectation]:
        """The rules for the rows of the SELECT."""
        return expectations(self.spec.expect)

    def with_spec(self, **fields: Any) -> Plan:
        """Return the plan with other fields of the table."""
        return replace(self, spec=replace(self.spec, **fields))

    def rules(self, *levels: Level) -> dict[str, Expectation]:
        """Return the rules of ``expect`` with one of these levels."""
        return {
            name: rule
            for name, rule in self.expect.items()
            if rule.level(has_quarantine=self.has_quarantine) in levels
        }

    @property
    def partition_columns(self) -> dict[str, str]:
        """The columns whose values are in the paths of the files."""
        return declared(self.files.partition_columns) or {}

    @property
    def rescued(self) -> dict[str, str]:
        """The column with what is rescued of a record, and its type; empty if there is none."""
        name = self.files.rescued_data_column
        return {name: "string"} if name else {}

    @property
    def sorts_records(self) -> bool:
        """Whether a batch in which something is bad is read once more, record by record."""
        return self.files.bad_records == "quarantine" or bool(self.rescued)

    @property
    def extends_columns(self) -> bool:
        """Whether each batch may add columns to those that were inferred: texts, whatever it has there."""
        if not self.infers_columns or self.schema_evolution == "fail" or self.files.extra_columns == "ignore":
            return False
        options = {name.lower(): value for name, value in (self.files.options or {}).items()}
        return self.files.format == "json" or str(options.get("header")).lower() == "true"

    @property
    def reads_as_table(self) -> bool:
        """Whether what a batch is read as depends on the commits before it."""
        if not isinstance(self.source, FileSource):
            return False
        is_text = self.source.format in ("csv", "text")
        return self.extends_columns or (not self.file_columns and (self.infers_columns or not is_text))

    @property
    def files(self) -> FileSource:
        """The source, if it is one of files; else ``TypeError``."""
        return self._source_as(FileSource)

    @property
    def cursor(self) -> TableSource | JdbcSource:
        """The source, if a cursor reads it; else ``TypeError``."""
        return self.source if isinstance(self.source, JdbcSource) else self._source_as(TableSource)

    @property
    def changes(self) -> CdfSource:
        """The source, if it is one of changes; else ``TypeError``."""
        return self._source_as(CdfSource)

    def _source_as(self, kind: type[_S]) -> _S:
        if not isinstance(self.source, kind):
            msg = f"the batches of {self.checkpoint} are not read by a {kind.__name__}"
            raise TypeError(msg)
        return self.source


def path(first: str, number: int) -> str:
    """Return the path of a plan of an application that has several.

    :param number: How many came before it.
    """
    return f"{first}.{number}" if number else first


def events_path(path: str) -> str:
    """Return the file beside a plan that has its events, if the application was told to write it."""
    return f"{path}.events"


def events(data: bytes | None) -> list[dict[str, Any]]:
    """Read the events of a plan, without a last line that is not whole yet.

    :param data: The file; None if there is none yet.
    """
    lines = (data or b"").decode().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def waits(data: bytes | None) -> bool:
    """Return whether an application has run the batches of a plan, and waits for the next one."""
    return any(event["event"] == "waiting" for event in events(data))


def findings_path(checkpoint: str) -> str:
    """Return the file in which an application that only reads writes what it found."""
    return f"{checkpoint}/findings"


def encode(plan: Plan) -> bytes:
    """Return the bytes of a plan file, with every mapping in its order: columns are read by position."""
    value = asdict(plan)
    if plan.source:
        value["source"] = {"kind": type(plan.source).__name__, **value["source"]}
        for bound in ("initial_value", "end_value", "range_end"):  # each slice has its own, with their types
            value["source"].get("cursor", {}).pop(bound, None)
    # Times in a source become text, which it takes as well.
    return json.dumps(value, ensure_ascii=False, default=str).encode()


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
    for name in ("batches", "quarantines"):
        value[name] = tuple(value[name])
    value["spec"] = TableSpec(**value["spec"])
    if source := value["source"]:
        value["source"] = _SOURCES[source.pop("kind")](**source)
    return Plan(**value)
