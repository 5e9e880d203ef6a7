"""The error of everything that reads SCOPE text."""

from __future__ import annotations

from airflow_provider_scope.exceptions import SqlError

UNTOUCHED = "everything; no job was submitted"


class ScriptError(SqlError):
    """SCOPE text is refused at a place in it.

    :param code: Short name of the rule, such as ``unclosed-string``.
    :param line: Line of the place, from 1.
    :param column: Column of the place in characters, from 1.
    :param what: What is wrong there.
    :param do: What to write instead.
    """

    def __init__(self, code: str, line: int, column: int, what: str, do: str) -> None:
        super().__init__(f"{code} at line {line}, column {column}: {what}", kept=UNTOUCHED, do=do)
        self.code = code
        self.line = line
        self.column = column
        self._given = (code, line, column, what, do)

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling with the place."""
        return (type(self), self._given)
