"""The text of the Dag file that ``airflow scope init`` writes. Nothing is read here."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, is_dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import Merge, TableSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from airflow_provider_scope.sources import AnySource

KEPT = "everything; nothing was written"
_WIDTH = 88
"""Columns of a line: the default of ruff and black."""
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Characters that a table without column mapping has in no name of a column."""

COMMENTS = {
    "delta_location": "{disk}Spark runs in the task, and needs Java 17. For a cluster: "
    "engine=SparkEngine(spark_conn_id=…).",
    "source.roots": "{files}, {size}; the newest is {newest!r}, of {time}Z. Each run loads those that no run "
    "has loaded.{left_out}",
    "source.patterns": "The names of the files that are loaded, as a regular expression.",
    "source.options.header": "The first line of each file has names: {header}. If it has values, leave this "
    "out.",
    "source.options.sep": "Between the fields of a record.",
    "source.options.escape": 'A quote in a quoted field is \\", and not "".',
    "source.options.multiLine": "{multiline} Without this option each line is one.",
    "source.options.encoding": "The files are not UTF-8, and their bytes fit this encoding: look at some "
    "letters.",
    "source.columns": "{columns}",
    "source.partition_columns": "Of folders such as {folders!r}. Without this they are no columns.",
    "source.safety_buffer_seconds": "{young} may still be written: younger files than this wait for the next "
    "run. If files appear with their whole content, write 0.",
    "source.bad_records": "{uneven} has more or fewer fields than the first. Such records go to a "
    'quarantine; "fail" refuses their batch instead.',
    "source.cursor": "{cursor}",
    "source.cursor.on_cursor_value_missing": "Rows without a value are loaded each time, because the column "
    "may hold NULL.",
    "source.cursor.lag": "No row comes late: SQLite has one writer at a time.",
    "source.time_zone": "{timed!r} has no zone: the one in which its writers set it. The database's is this.",
    "source.options.customSchema": "{types} A value that does not fit is refused, and never rounded.",
    "source.full_load": "The first run loads all rows of the newest version (now {version}), the next ones "
    "the changes since: older versions may be gone. Run it more often than the source forgets changes: "
    "{kept}.",
    "source.deletes": 'Deletes in the source delete here. "ignore" or "soft" keeps the rows.',
    "table.schema_evolution": "The files have different columns: each becomes a column of the table, as "
    'text. With "fail" all files have to have the same ones, and their types are inferred.',
    "table.properties": "A table has names such as {odd!r} ({odd_count:,}) only with column mapping, which "
    "all of its readers have to know. Or leave this out, and give these columns other names in `sql`, with "
    "AS.",
    "write": "{write}",
}
"""Argument of the operator -> what was seen, and how to change it: with the facts of a ``Load``."""


class Load(NamedTuple):
    """What loads a source."""

    subject: str
    """What is loaded, for the file's first line."""
    source: AnySource
    names: Sequence[str]
    """Of all columns, also inside of others."""
    write: str | Merge
    facts: Mapping[str, Any]
    """For the comments."""
    schema_evolution: str = "fail"
    also: Collection[str] = ()
    """Arguments that are written although they have their defaults."""


def refusal(message: str, do: str) -> InputError:
    return InputError(message, kept=KEPT, do=do)


def check_distinct(names: Sequence[str]) -> None:
    """Refuse columns that no Delta table holds beside each other.

    :raises InputError: Two names differ in letter case alone.
    """
    counts = Counter(name.lower() for name in names)
    alike = [name for name in names if counts[name.lower()] > 1]
    if alike:
        raise refusal(
            "The source has columns whose names are the same, but for their letter case: "
            f"{', '.join(map(repr, alike))}. A Delta table holds only one of them.",
            "rename one of them in the source, and run the command again",
        )


def dag_text(dag_id: str, location: str, storage_conn_id: str | None, load: Load) -> str:
    """Write the Dag file that loads a source into a Delta table.

    :param location: The folder of the table.
    :param storage_conn_id: The connection of its store, and of that of the source.
    :raises InputError: Airflow would take a text in it for a template.
    """
    odd = [name for name in dict.fromkeys(load.names) if _NOT_IN_NAMES & {*name}]
    is_local = location.startswith(("/", "file:"))
    facts = {
        "disk": "A path on a disk: the task has to run where it is. " if is_local else "",
        "odd": next(iter(odd), None),
        "odd_count": len(odd),
        **load.facts,
    }
    table = TableSpec(
        properties={"delta.columnMapping.mode": "name"} if odd else None,
        schema_evolution=load.schema_evolution,  # type: ignore[arg-type]
    )
    arguments = {
        "task_id": "load",
        "delta_location": location,
        "storage_conn_id": storage_conn_id,
        "source": load.source,
        "table": None if table == TableSpec() else table,
        "write": load.write,
    }
    written = {name: value for name, value in arguments.items() if value is not None}
    text = _Text(facts, load.also)
    lines = [line for name, value in written.items() for line in text.lines(name, f"{name}=", value, 8)]
    specs = ", ".join(sorted({spec for value in written.values() for spec in text.specs(value)}))
    task = "\n".join(lines)
    return f'''"""Load {load.subject} into a Delta table, exactly once.

Written by airflow scope init: each comment says what it saw, and how to change it.
`airflow scope plan {dag_id} load --read` shows what the next run loads.
"""

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import {specs}

with DAG(
    {_literal(dag_id)},
    # Runs when it is triggered. To run it each hour: "@hourly".
    schedule=None,
) as dag:
    DeltaIncrementalIngestOperator(
{task}
    )
'''


class _Part(NamedTuple):
    """An argument of a call, an item of a dict or of a list."""

    path: str
    """From the operator on, as in ``COMMENTS``."""
    prefix: str
    value: Any


class _Text(NamedTuple):
    """Writes values as the formatter does.

    A value is a spec, a dict, a sequence, a text, a number or a truth value.
    """

    facts: Mapping[str, Any]
    also: Collection[str]

    def lines(self, path: str, prefix: str, value: Any, indent: int) -> Iterator[str]:
        """Write an argument with its comment: in one line, or else with each of its parts in its own."""
        blank = " " * indent
        comment = COMMENTS.get(path, "").format_map(self.facts)
        for line in wrap(comment, _WIDTH - indent - 2, break_long_words=False, break_on_hyphens=False):
            yield f"{blank}# {line}"
        value = _single(value)
        parts = self.parts(path, value)
        line = f"{blank}{prefix}{self.code(path, value)},"
        # Bytes are never fewer than the columns that a text takes.
        fits = len(line.encode(errors="surrogatepass")) <= _WIDTH
        if not parts or (fits and not any(part.path in COMMENTS for part in parts)):
            yield line
            return
        opening, closing = _around(value)
        yield f"{blank}{prefix}{opening}"
        for part in parts:
            yield from self.lines(*part, indent + 4)
        yield f"{blank}{closing},"

    def code(self, path: str, value: Any) -> str:
        """Write a value in one line."""
        value = _single(value)
        parts = self.parts(path, value)
        if not parts:
            return _literal(value)
        opening, closing = _around(value)
        return opening + ", ".join(part.prefix + self.code(part.path, part.value) for part in parts) + closing

    def parts(self, path: str, value: Any) -> list[_Part]:
        """Take a value apart; a field that has its default is left out."""
        if is_dataclass(value):
            of_spec = [(f"{path}.{item.name}", item, getattr(value, item.name)) for item in fields(value)]
            return [
                _Part(inner, f"{item.name}=", field)
                for inner, item, field in of_spec
                if field != item.default or inner in self.also
            ]
        if isinstance(value, dict):
            return [_Part(f"{path}.{key}", f"{_literal(key)}: ", item) for key, item in value.items()]
        return [_Part("", "", item) for item in value] if isinstance(value, (list, tuple)) else []

    def specs(self, value: Any) -> Iterator[str]:
        """Name the classes of a spec, and of those in it."""
        if is_dataclass(value):
            yield type(value).__name__
        for part in self.parts("", value):
            yield from self.specs(part.value)


def _single(value: Any) -> Any:
    """Return the one item of a tuple, which a spec makes of it; any other value as it is."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _around(value: Any) -> tuple[str, str]:
    if is_dataclass(value):
        return f"{type(value).__name__}(", ")"
    return ("{", "}") if isinstance(value, dict) else ("[", "]")


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value)
    if re.search(r"\{[{%#]", value):
        raise refusal(
            f"The Dag file would have the text {value!r}, which Airflow takes for a template.",
            "rename the folder, the table or the column in it",
        )
    # With a double quote in it, Python takes single ones, and escapes those inside.
    inner = repr(value + '"')[1:-2].replace("\\'", "'")
    quote = '"' if value.count('"') <= value.count("'") else "'"
    return quote + inner.replace(quote, f"\\{quote}") + quote
