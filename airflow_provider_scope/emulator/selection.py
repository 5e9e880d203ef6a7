"""A SELECT that only picks columns: the one that the instant executor runs."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_scope.emulator.reading import ScriptFailedError
from airflow_provider_scope.script.lexer import KEYWORDS, Token, tokens


@dataclass(frozen=True, slots=True)
class Selection:
    """``SELECT column [AS name], … FROM rowset``."""

    rowset: str
    columns: tuple[tuple[str, str], ...] | None
    """Pairs (name in the rowset, name in the result); None is ``*``."""


def read_selection(text: str) -> Selection:
    """Read a SELECT.

    :raises ScriptFailedError: It does more than pick columns.
    """
    reader = _Reader([token for token in tokens(text) if token.kind != "end"])
    reader.keyword("SELECT")
    columns = None if reader.accept_symbol("*") else reader.columns()
    reader.keyword("FROM")
    rowset = reader.take("variable", "name")
    if reader.rest:
        raise reader.refusal()
    return Selection(rowset, columns)


class _Reader:
    def __init__(self, found: list[Token]) -> None:
        self.rest = found

    def refusal(self) -> ScriptFailedError:
        near = self.rest[0].text if self.rest else "its end"
        return ScriptFailedError(
            f"The instant executor only picks columns, and cannot run this SELECT at {near!r}: "
            "use the Spark executor."
        )

    def keyword(self, word: str) -> None:
        if not (self.rest and self.rest[0].is_keyword(word)):
            raise self.refusal()
        del self.rest[0]

    def accept_symbol(self, text: str) -> bool:
        if self.rest and self.rest[0].is_symbol(text):
            del self.rest[0]
            return True
        return False

    def take(self, *kinds: str) -> str:
        if not self.rest or self.rest[0].kind not in kinds:
            raise self.refusal()
        token = self.rest.pop(0)
        if token.kind == "name" and token.text in KEYWORDS:
            raise ScriptFailedError(f"The instant executor only picks columns, not {token.text}.")
        return token.value

    def columns(self) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        while not found or self.accept_symbol(","):
            name = self.take("name", "quoted")
            alias = name
            if self.rest and self.rest[0].is_keyword("AS"):
                self.keyword("AS")
                alias = self.take("name", "quoted")
            found.append((name, alias))
        return tuple(found)
