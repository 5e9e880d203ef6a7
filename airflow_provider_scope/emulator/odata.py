"""The filters that clients of the job list send: a small part of OData version 3.

``or``, ``and``, ``not``, parentheses, ``eq ne lt le gt ge``, ``startswith``, ``endswith`` and
``substringof``, text in single quotes (doubled to escape), numbers, ``null``, ``guid'..'`` and
``datetimeoffset'..'``, and paths into nested objects with ``/``.
"""

from __future__ import annotations

import operator
import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Item = Mapping[str, Any]
    Test = Callable[[Item], bool]
    Value = Callable[[Item], Any]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<typed>(?:guid|datetimeoffset|datetime)'[^']*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<number>-?\d+(?:\.\d+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:/[A-Za-z_][A-Za-z0-9_]*)*)
    | (?P<mark>[(),])
    )""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_FUNCTIONS: dict[str, Callable[[str, str], bool]] = {
    "startswith": lambda whole, part: whole.startswith(part),
    "endswith": lambda whole, part: whole.endswith(part),
    "substringof": lambda part, whole: part in whole,
}
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(\.\d+)?(Z|[+-]\d\d:\d\d)?")
_LONGEST = 8192
_DEEPEST = 50


class FilterError(ValueError):
    """The filter is not in the dialect."""


def parse_filter(text: str) -> Test:
    """Compile a filter to a test of one job.

    :raises FilterError: It is not in the dialect.
    """
    if len(text) > _LONGEST:
        raise FilterError(f"the filter is longer than {_LONGEST} characters")
    parser = _Parser(_tokens(text))
    test = parser.either()
    parser.finish()
    return test


def read_moment(text: str) -> datetime:
    """Read a time with any number of fractional digits; without an offset it is UTC.

    :raises FilterError: It is not a time.
    """
    # A plus that came unescaped in a query was read as a blank.
    found = _MOMENT.fullmatch(text.strip().replace(" ", "+"))
    if found is None:
        raise FilterError(f"{text!r} is not a time")
    base, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(base + (fraction or "")[:7] + (zone or "+00:00"))
    except ValueError as err:
        raise FilterError(f"{text!r} is not a time") from err
    return moment.astimezone(UTC)


def field_of(item: Item, path: str) -> Any:
    """Give a field, also a nested one; None when there is none."""
    value: Any = item
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise FilterError(f"cannot read the filter at character {at + 1}")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Parser:
    """Recursive descent: or, and, not, comparison."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def either(self) -> Test:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise FilterError("the filter is nested too deeply")
        left = self._both()
        while self._accept("name", "or"):
            left = _or(left, self._both())
        self._depth -= 1
        return left

    def finish(self) -> None:
        if self._at < len(self._tokens):
            raise FilterError(f"{self._tokens[self._at][1]!r} is not expected there")

    def _both(self) -> Test:
        left = self._one()
        while self._accept("name", "and"):
            left = _and(left, self._one())
        return left

    def _one(self) -> Test:
        if self._accept("name", "not"):
            inner = self._one()
            return lambda item: not inner(item)
        if self._accept("mark", "("):
            inner = self.either()
            self._expect(")")
            return inner
        kind, text = self._next()
        if kind == "name" and text in _FUNCTIONS and self._accept("mark", "("):
            first = self._value(*self._next())
            self._expect(",")
            second = self._value(*self._next())
            self._expect(")")
            return _call(_FUNCTIONS[text], first, second)
        left = self._value(kind, text)
        kind, word = self._next()
        if kind != "name" or word not in _COMPARE:
            raise FilterError(f"expected a comparison, not {word!r}")
        return _comparison(_COMPARE[word], left, self._value(*self._next()))

    def _value(self, kind: str, text: str) -> Value:
        if kind == "name":
            if text in ("null", "true", "false"):
                constant = {"null": None, "true": True, "false": False}[text]
                return lambda _: constant
            return lambda item: field_of(item, text)
        value = _literal(kind, text)
        return lambda _: value

    def _accept(self, kind: str, text: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == (kind, text):
            self._at += 1
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._accept("mark", mark):
            raise FilterError(f"{mark!r} is missing")

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise FilterError("the filter ends too early")
        self._at += 1
        return self._tokens[self._at - 1]


def _literal(kind: str, text: str) -> Any:
    if kind == "text":
        return text[1:-1].replace("''", "'")
    if kind == "number":
        return float(text)
    if kind == "typed":
        name, _, rest = text.partition("'")
        if name != "guid":
            return read_moment(rest[:-1])
        try:
            return uuid.UUID(rest[:-1])
        except ValueError as err:
            raise FilterError(f"{rest[:-1]!r} is not a GUID") from err
    raise FilterError(f"{text!r} is not a value")


def _comparison(compare: Callable[[Any, Any], bool], left: Value, right: Value) -> Test:
    def test(item: Item) -> bool:
        one, other = _alike(left(item), right(item))
        try:
            return compare(one, other)
        except TypeError:  # an order between a value and null
            return False

    return test


def _alike(one: Any, other: Any) -> tuple[Any, Any]:
    """Read the text of a field as what the other side is."""
    for kind, read in ((datetime, read_moment), (uuid.UUID, uuid.UUID)):
        try:
            if isinstance(other, kind) and isinstance(one, str):
                one = read(one)
            elif isinstance(one, kind) and isinstance(other, str):
                other = read(other)
        except ValueError:
            return None, other
    return one, other


def _call(function: Callable[[str, str], bool], first: Value, second: Value) -> Test:
    def test(item: Item) -> bool:
        one, other = first(item), second(item)
        return isinstance(one, str) and isinstance(other, str) and function(one, other)

    return test


def _and(left: Test, right: Test) -> Test:
    return lambda item: left(item) and right(item)


def _or(left: Test, right: Test) -> Test:
    return lambda item: left(item) or right(item)
