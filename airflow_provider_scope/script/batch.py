"""What goes into the script of one batch, and the name by which its job is known again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_scope.script.statements import VIRTUAL_FUNCTIONS, Value
from airflow_provider_scope.specs.validation import bad

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_scope.core.files import FileEntry

MARKER_PROPERTY = "adlaScope.batch"
"""The table property that tells which attempt of which batch changed the table last, and if it is done."""
_TITLE = "// airflow-provider-scope batch"
_PIPELINE = r"[A-Za-z0-9._:/+ -]+"
_NUMBER = r"0|[1-9][0-9]*"
_HEADER = re.compile(
    re.escape(_TITLE)
    + rf'\r?\n// pipeline: "({_PIPELINE})"\r?\n// seq: ({_NUMBER})\r?\n// attempt: ({_NUMBER})\r?\n'
)


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """One attempt of one batch of one pipeline."""

    pipeline: str
    seq: int
    attempt: int

    @property
    def marker(self) -> str:
        """The value of the table property ``MARKER_PROPERTY``."""
        return f"{self.pipeline}:{self.seq}:{self.attempt}"

    @property
    def closing_marker(self) -> str:
        """The value of ``MARKER_PROPERTY`` once the attempt's rows are in the table."""
        return f"{self.marker}:done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptBatch:
    """Everything that the script of one batch is made of."""

    identity: BatchIdentity
    location: str
    """The Delta table, as SCOPE addresses it."""
    sql: str
    """The user's SELECT over ``@data``."""
    files: tuple[FileEntry, ...]
    """In the order in which they are read; paths as SCOPE addresses them."""
    table_columns: Mapping[str, str]
    """Name -> SCOPE type, in order."""
    extract_columns: Mapping[str, str] | None = None
    """Those of the files; None takes the table's, without the virtual ones."""
    virtual_columns: tuple[str, ...] = tuple(VIRTUAL_FUNCTIONS)
    """Which of ``VIRTUAL_FUNCTIONS`` are read."""
    partition_by: tuple[str, ...] = ()
    new_columns: tuple[str, ...] = ()
    """Those of ``table_columns`` that the table may not have; they are added where they are missing."""
    properties: Mapping[str, Value] = field(default_factory=dict)
    overwrite: bool = False
    """Whether everything in the table is deleted first: the first batch of a full refresh."""
    mark_table: bool = False
    """Whether the attempt is written into the table's properties, before its rows and after them."""
    feature_previews: tuple[str, ...] = ("EnableDeltaTableDynamicInsert:on",)
    settings: Mapping[str, Value] = field(default_factory=dict)
    """Further ``SET @@name = value;``."""
    extractor: str = "Extractors.SStream"


def header(identity: BatchIdentity) -> str:
    """Give the comment lines that start a script.

    :raises InputError: The pipeline's name or a number cannot be read back out of a comment.
    """
    if not re.fullmatch(_PIPELINE, identity.pipeline):
        raise bad("pipeline", identity.pipeline, "letters, digits, spaces and . _ : / + -")
    for name, number in (("seq", identity.seq), ("attempt", identity.attempt)):
        if type(number) is not int or number < 0:
            raise bad(name, number, "a whole number, at least 0")
    lines = (
        _TITLE,
        f'// pipeline: "{identity.pipeline}"',
        f"// seq: {identity.seq}",
        f"// attempt: {identity.attempt}",
    )
    return "\n".join(lines) + "\n"


def identity_of(script: str) -> BatchIdentity | None:
    """Read the attempt that a script was made for; None if it does not start with our header."""
    match = _HEADER.match(script)
    return BatchIdentity(match[1], int(match[2]), int(match[3])) if match else None


def identity_of_marker(marker: str) -> BatchIdentity | None:
    """Read the attempt out of either value of ``MARKER_PROPERTY``; None if it is not ours."""
    match = re.fullmatch(rf"({_PIPELINE}):({_NUMBER}):({_NUMBER})(:done)?", marker)
    return BatchIdentity(match[1], int(match[2]), int(match[3])) if match else None
