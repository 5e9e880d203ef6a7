"""How a record of the checkpoint is written and read.

Bytes are deterministic (sorted keys, fixed separators, a newline at the end), so two runners that
write the same record write the same bytes. Reading is strict: the checkpoint is untrusted input, and a
record that is cut short must never pass as a shorter one.
"""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_scope.exceptions import CheckpointCorruptError, CheckpointVersionError

FORMAT = 1


def line(value: object) -> str:
    """Give a value as one line of JSON, always the same."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Reader:
    """Typed access to the fields of one JSON object, with the record's name in every error."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as err:
            raise self.corrupt(f"is not JSON ({err})") from err
        if not isinstance(value, dict):
            raise self.corrupt(f"holds {type(value).__name__}, not an object")
        self.value: dict[str, Any] = value

    def corrupt(self, what: str) -> CheckpointCorruptError:
        """Give the error for a record that says something that cannot be."""
        return CheckpointCorruptError(
            f"The checkpoint record {self.name} {what}.",
            kept="the table and all records; nothing was written",
            do="restore the record from a copy of the checkpoint. It must not be deleted or edited to "
            "make the error go away: that loses or doubles rows.",
        )

    def check_format(self) -> None:
        """Refuse a record of a newer version of this package."""
        found = self.integer("format")
        if found > FORMAT:
            raise CheckpointVersionError(
                f"The checkpoint record {self.name} has format {found}; this version of "
                f"airflow-provider-scope reads formats up to {FORMAT}.",
                kept="the table and all records; nothing was written",
                do="install the version of airflow-provider-scope that wrote it, or a newer one",
            )

    def integer(self, key: str) -> int:
        """Give a whole number that must be there."""
        value = self.value.get(key)
        if type(value) is not int:
            raise self.corrupt(f"has {key}={value!r}, expected a whole number")
        return value

    def optional_integer(self, key: str) -> int | None:
        """Give a whole number; None for null and for no such key."""
        return None if self.value.get(key) is None else self.integer(key)

    def text(self, key: str) -> str:
        """Give a text that must be there."""
        value = self.value.get(key)
        if not isinstance(value, str):
            raise self.corrupt(f"has {key}={value!r}, expected text")
        return value

    def switch(self, key: str) -> bool:
        """Give true or false; false for no such key."""
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            raise self.corrupt(f"has {key}={value!r}, expected true or false")
        return value

    def counts(self, key: str) -> dict[str, int]:
        """Give whole numbers by name; none for no such key."""
        value = self.value.get(key, {})
        if not isinstance(value, dict) or not all(type(count) is int for count in value.values()):
            raise self.corrupt(f"has {key}={value!r}, expected a number for each name")
        return value


def single(name: str, data: bytes) -> Reader:
    """Read a record that is one JSON object."""
    text = text_of(name, data)
    reader = Reader(name, text)
    reader.check_format()
    return reader


def text_of(name: str, data: bytes) -> str:
    """Give the text of a record that was written to its end."""
    if not data.endswith(b"\n"):
        raise CheckpointCorruptError(
            f"The checkpoint record {name} is cut short ({len(data)} bytes, no newline at the end).",
            kept="the table and all records; nothing was written",
            do="restore the record from a copy of the checkpoint; do not delete or edit it",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise CheckpointCorruptError(
            f"The checkpoint record {name} is not UTF-8 ({err}).",
            kept="the table and all records; nothing was written",
            do="restore the record from a copy of the checkpoint; do not delete or edit it",
        ) from err


def notes(user_metadata: str | None) -> dict[str, Any]:
    """Give what we wrote into a commit of a Delta table; other writers put any text there."""
    try:
        value = json.loads(user_metadata or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
