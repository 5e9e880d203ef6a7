"""CSV: what is written for values, and what stands in a file, by RFC 4180 alone."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from tests.datasets.kinds import Kind


@dataclass(frozen=True)
class Dialect:
    """How the files of a source are written; ``options`` say it to Spark."""

    separator: str = ","
    quote: str = '"'
    header: bool = False
    multiline: bool = False
    line_end: str = "\n"

    @property
    def options(self) -> dict[str, str]:
        """Return the options that a user writes for such files; ours are not repeated."""
        options = {}
        if self.separator != ",":
            options["sep"] = self.separator
        if self.quote != '"':
            options["quote"] = self.quote
            options["escape"] = self.quote
        if self.header:
            options["header"] = "true"
        if self.multiline:
            options["multiLine"] = "true"
        return options


def dialect(rng: random.Random) -> Dialect:
    """Return a dialect; most files are tidy."""
    return Dialect(
        separator=rng.choice((",", ",", ",", ";", "\t", "|", ":", "\x01", "§")),
        quote=rng.choice(('"', '"', '"', "'")),
        header=rng.random() < 0.6,
        multiline=rng.random() < 0.3,
        line_end=rng.choice(("\n", "\n", "\r\n")),
    )


def quoted(text: str, how: Dialect) -> str:
    """Return a text in quotes, those inside it doubled."""
    return how.quote + text.replace(how.quote, how.quote * 2) + how.quote


def field(value: Any, kind: Kind, how: Dialect, rng: random.Random) -> str:
    """Return what stands in the file for a value: nothing for NULL, and quotes where needed or by chance."""
    if value is None:
        empty = kind.name != "string" and rng.random() < 0.2
        return how.quote * 2 if empty else ""
    text = written(value, kind, rng)
    needs = (
        text == "" or any(c in text for c in (how.separator, how.quote, "\n", "\r")) or text != text.strip()
    )
    # A parser that drops a mark at the beginning of the file, or skips lines that begin with a sign, may not.
    return quoted(text, how) if needs or text[0] in "#\ufeff\0" or rng.random() < 0.2 else text


def written(value: Any, kind: Kind, rng: random.Random) -> str:
    """Return one of the texts that stand for exactly this value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)  # of a `float` too: its digits as a `double` are read as that very `float`
    if isinstance(value, decimal.Decimal):
        return plain(value, rng)
    if isinstance(value, dt.datetime):
        return moment(value, rng)
    if isinstance(value, dt.date):
        return value.isoformat()
    return str(value)


def plain(value: decimal.Decimal, rng: random.Random) -> str:
    """Return a decimal without an exponent, sometimes without the zeros at its end."""
    text = f"{value:f}"
    if "." in text and rng.random() < 0.4:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"", "-", "-0"} else text


def moment(value: dt.datetime, rng: random.Random) -> str:
    """Return a time as ISO 8601 has it; that of a zone in another zone by chance."""
    zone = ""
    if value.tzinfo:
        zone = rng.choice(("Z", "+00:00", "+05:30", "-08:00"))
        if zone[0] in "+-":
            hours, minutes = int(zone[1:3]), int(zone[4:])
            shift = dt.timedelta(hours=hours, minutes=minutes) * (1 if zone[0] == "+" else -1)
            try:
                value = value + shift
            except OverflowError:
                zone = "Z"
    bare = value.replace(tzinfo=None)
    text = bare.isoformat(sep=rng.choice("T "), timespec="microseconds" if bare.microsecond else "seconds")
    if bare.microsecond and rng.random() < 0.5:
        text = text.rstrip("0")
    return text + zone


def record(fields: Sequence[str], how: Dialect) -> str:
    """Return a line of a file."""
    return how.separator.join(fields) + how.line_end


def parse(  # noqa: C901 - a parser of one page
    text: str, separator: str = ",", quote: str = '"'
) -> Iterator[list[tuple[str, bool]]]:
    """Return the records of a CSV text: for each field its text, and whether it stood in quotes.

    Python's ``csv`` does not tell a quoted empty field from an empty one. Empty lines are no records.

    :raises ValueError: The text is not what RFC 4180 says.
    """
    if quote not in text and "\r" not in text:
        yield from ([(field, False) for field in line.split(separator)] for line in text.split("\n") if line)
        return
    at, size = 0, len(text)
    while at < size:
        if text[at] in "\r\n":
            at += 1
            continue
        fields: list[tuple[str, bool]] = []
        while True:
            if text.startswith(quote, at):
                chars = []
                at += 1
                while True:
                    end = text.index(quote, at)
                    chars.append(text[at:end])
                    at = end + 1
                    if not text.startswith(quote, at):
                        break
                    chars.append(quote)
                    at += 1
                fields.append(("".join(chars), True))
            else:
                start = at
                while at < size and text[at] not in "\r\n" and text[at] != separator:
                    if text[at] == quote:
                        msg = f"a quote inside of a field that has none at its beginning, at {at}"
                        raise ValueError(msg)
                    at += 1
                fields.append((text[start:at], False))
            if at >= size or text[at] in "\r\n":
                break
            if text[at] != separator:
                msg = f"text behind the end of a quoted field, at {at}"
                raise ValueError(msg)
            at += 1
        yield fields
