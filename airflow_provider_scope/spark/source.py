"""What the files of a batch are read as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.spark.structs import to_struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

    from airflow_provider_scope.core.plan import Plan

_OURS = frozenset({"mode", "columnnameofcorruptrecord", "enforceschema", "columnpruning", "mergeschema"})
"""Options that the specs let through only with the value that they have anyway."""


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a plan that a reader of files needs."""

    format: str
    columns: T.StructType | None
    """The declared columns; None takes those of the files."""
    options: Mapping[str, str]
    """The user's options by their names in lower case, but for those that we set whatever they say."""
    extra: bool
    """Whether columns and keys that are not declared are left out; else they are a problem."""
    missing: bool
    """Whether declared columns that a file lacks are NULL; else that is a problem."""
    inferred: bool
    """Whether nobody declared the columns: then no text may be changed by its type; see ``candidates``."""
    trusted: frozenset[str]
    """Rules that are not checked again: what they suspected was looked at in the bytes."""

    @property
    def is_multi_line(self) -> bool:
        """Whether a record may have several lines."""
        return self.options.get("multiline", "false").lower() == "true"

    @property
    def encoding(self) -> str:
        """The encoding of the files, in capitals, with hyphens."""
        named = self.options.get("encoding", self.options.get("charset", "UTF-8"))
        return named.upper().replace("_", "-")

    @property
    def is_utf8(self) -> bool:
        """Whether the files are UTF-8."""
        return self.encoding in ("UTF-8", "UTF8")

    @property
    def is_wide(self) -> bool:
        """Whether a character has at least two bytes, so that a line end has, too."""
        return self.encoding.startswith(("UTF-16", "UTF-32"))


def source_of(plan: Plan, trusted: frozenset[str] = frozenset()) -> Source:
    """Give what the files of a plan's batches are read as.

    :raises InputError: A declared type is not one of Spark's.
    """
    files = plan.files
    named = {name.lower(): value for name, value in files.options.items()}
    return Source(
        format=files.format,
        columns=to_struct(files.columns) if files.columns else None,
        options={name: value for name, value in named.items() if name not in _OURS},
        extra=files.extra_columns == "ignore",
        missing=files.missing_columns == "null",
        inferred=files.infers_columns,
        trusted=trusted,
    )
