"""The types of columns: how users write them, how Delta and Arrow call them, and values of each."""

from __future__ import annotations

import datetime as dt
import decimal
import string
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import random

_INTEGERS = {
    "tinyint": (8, "byte"),
    "smallint": (16, "short"),
    "int": (32, "integer"),
    "bigint": (64, "long"),
}
_ALPHABETS = (
    string.ascii_letters + string.digits,
    "äöüßéñçøåžŁ",
    "日本語テスト中文한국어",
    "абвгдежзΑΒΓαβγשלוםمرحبا",
    "😀🎉👩\u200d🚀🇩🇪",
    " -_.:;,|/\\'\"#%&+*?[]{}()<>=!@$^~`\t",
)
# What readers are tempted to take for something else.
_TEMPTING = (
    "", " ", "  x ", "NULL", "null", "None", "NaN", "N/A", "true", "0", "007", "1e5", "1,5", "2026-01-01",
    '"', '""', "'", "\\", "\\\\", "\\n", "\\N", '\\"', 'a"b', 'a""b', "#", "# x", "a,b", "a;b", "a|b",
    "a\tb", "=1+1", "-", "_c0", "\u00a0", "\u200b", "e\u0301", "é", "\u2028", "\x85", "\x01", "\x1f", "{}",
    "[]", "@data", "${x}", "%20",
)  # fmt: skip
_BREAKS = ("\n", "a\nb", "a\r\nb", "\r\n", "a\rb", '"\n"', ",\n,")


@dataclass(frozen=True)
class Kind:
    """One type; ``parts`` are the types inside it, ``names`` those of a struct's fields."""

    name: str
    parts: tuple[Kind, ...] = ()
    names: tuple[str, ...] = ()
    digits: tuple[int, int] = (0, 0)

    @property
    def ddl(self) -> str:
        """Return the type as users write it."""
        match self.name:
            case "decimal":
                return f"decimal({self.digits[0]},{self.digits[1]})"
            case "array":
                return f"array<{self.parts[0].ddl}>"
            case "map":
                return f"map<{self.parts[0].ddl},{self.parts[1].ddl}>"
            case "struct":
                fields = zip(self.names, self.parts, strict=True)
                return "struct<" + ",".join(f"`{n}`:{p.ddl}" for n, p in fields) + ">"
        return self.name

    @property
    def arrow(self) -> pa.DataType:
        """Return the type as Arrow has it."""
        match self.name:
            case "tinyint" | "smallint" | "int" | "bigint":
                return getattr(pa, f"int{_INTEGERS[self.name][0]}")()
            case "decimal":
                return pa.decimal128(*self.digits)
            case "array":
                return pa.list_(self.parts[0].arrow)
            case "map":
                return pa.map_(self.parts[0].arrow, self.parts[1].arrow)
            case "struct":
                return pa.struct([(n, p.arrow) for n, p in zip(self.names, self.parts, strict=True)])
        return {
            "string": pa.string(),
            "binary": pa.binary(),
            "boolean": pa.bool_(),
            "float": pa.float32(),
            "double": pa.float64(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "timestamp_ntz": pa.timestamp("us"),
        }[self.name]

    @property
    def delta(self) -> Any:
        """Return the type as the log of a Delta table has it, without what says if it may be NULL."""
        match self.name:
            case "tinyint" | "smallint" | "int" | "bigint":
                return _INTEGERS[self.name][1]
            case "array":
                return {"array": self.parts[0].delta}
            case "map":
                return {"map": [self.parts[0].delta, self.parts[1].delta]}
            case "struct":
                return {"struct": [[n, p.delta] for n, p in zip(self.names, self.parts, strict=True)]}
        return self.ddl

    @property
    def is_nested(self) -> bool:
        """Return whether there are types inside."""
        return bool(self.parts)


SCALARS = (
    "string", "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal",
    "decimal", "date", "timestamp", "timestamp_ntz",
)  # fmt: skip


def scalar(rng: random.Random, *, binary: bool = False) -> Kind:
    """Return a type without others inside."""
    name = rng.choice((*SCALARS, "binary") if binary else SCALARS)
    if name != "decimal":
        return Kind(name)
    precision = rng.choice((1, 4, 9, 10, 18, 19, 30, 38))
    return Kind(name, digits=(precision, rng.choice((0, min(2, precision), precision // 2, precision))))


def nested(rng: random.Random, depth: int = 2, *, binary: bool = False) -> Kind:
    """Return any type, up to ``depth`` levels deep."""
    shape = rng.choice(("scalar", "array", "struct", "map")) if depth else "scalar"
    if shape == "array":
        return Kind("array", (nested(rng, depth - 1, binary=binary),))
    if shape == "map":
        return Kind("map", (Kind("string"), nested(rng, depth - 1, binary=binary)))
    if shape == "struct":
        names = tuple(
            rng.sample(("z", "a", "B", "größe", "x.y", "select", "m1", "0", "value"), rng.randint(1, 4))
        )
        return Kind("struct", tuple(nested(rng, depth - 1, binary=binary) for _ in names), names)
    return scalar(rng, binary=binary)


def text(rng: random.Random, *, breaks: bool) -> str:
    """Return a text, often one that a careless reader changes."""
    pick = rng.random()
    if pick < 0.35:
        return rng.choice(_TEMPTING)
    if breaks and pick < 0.45:
        return rng.choice(_BREAKS)
    letters = rng.choice(_ALPHABETS) + (rng.choice(_ALPHABETS) if rng.random() < 0.5 else "")
    size = rng.choice((1, 3, 8, 20, 200)) if rng.random() < 0.98 else 20_000
    return "".join(rng.choice(letters) for _ in range(size))


def value(  # noqa: C901 - one case for each type
    kind: Kind, rng: random.Random, *, breaks: bool, nulls: float = 0.15
) -> Any:
    """Return a value of a type, or None."""
    if rng.random() < nulls:
        return None
    inner = {"breaks": breaks, "nulls": nulls}
    match kind.name:
        case "string":
            return text(rng, breaks=breaks)
        case "binary":
            return rng.randbytes(rng.choice((0, 1, 2, 3, 40)))
        case "boolean":
            return rng.random() < 0.5
        case "array":
            return [value(kind.parts[0], rng, **inner) for _ in range(rng.choice((0, 1, 2, 5)))]
        case "map":
            keys = {text(rng, breaks=breaks)[:50] for _ in range(rng.choice((0, 1, 3)))}
            return [(key, value(kind.parts[1], rng, **inner)) for key in sorted(keys)]
        case "struct":
            return {n: value(p, rng, **inner) for n, p in zip(kind.names, kind.parts, strict=True)}
        case "float" | "double":
            return _number(kind.name, rng)
        case "decimal":
            return _decimal(kind.digits, rng)
        case "date":
            return _moment(rng).date()
        case "timestamp":
            return _moment(rng).replace(tzinfo=dt.UTC)
        case "timestamp_ntz":
            return _moment(rng)
    bits = _INTEGERS[kind.name][0]
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return rng.choice((0, 1, -1, low, high, rng.randint(low, high), rng.randint(-100, 100)))


def _number(name: str, rng: random.Random) -> float:
    extremes = {
        "double": (1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 0.1, 1e16, 123456789.123456789),
        "float": (3.4028234663852886e38, 1.401298464324817e-45, 1.1754943508222875e-38, 0.1, 16777217.0),
    }[name]
    picked = rng.choice((0.0, -0.0, 1.0, rng.uniform(-1e3, 1e3), rng.gauss(0, 1e20), *extremes))
    return float32(picked) if name == "float" else picked


def float32(number: float) -> float:
    """Return the nearest number that a ``float`` holds."""
    return struct.unpack("f", struct.pack("f", number))[0]


def _decimal(digits: tuple[int, int], rng: random.Random) -> decimal.Decimal:
    precision, scale = digits
    largest = 10**precision - 1
    unscaled = rng.choice((0, 1, -1, largest, -largest, rng.randint(-largest, largest), rng.randint(-99, 99)))
    unscaled = max(-largest, min(largest, unscaled))
    # By its digits: arithmetic would round to those of the context.
    sign = 1 if unscaled < 0 else 0
    return decimal.Decimal((sign, tuple(int(d) for d in str(abs(unscaled))), -scale))


def _moment(rng: random.Random) -> dt.datetime:
    """Return a time of the years 1 to 9999, to the microsecond; calendars and zones have changed in them."""
    special = (
        dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1582, 10, 4, 12),
        dt.datetime(1582, 10, 10, 12), dt.datetime(1582, 10, 15), dt.datetime(1883, 11, 18, 12, 3, 58),
        dt.datetime(1899, 12, 31, 23, 59, 59), dt.datetime(1900, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(1970, 1, 1), dt.datetime(2000, 2, 29),
        dt.datetime(2038, 1, 19, 3, 14, 8), dt.datetime(2026, 3, 29, 2, 30), dt.datetime(2262, 4, 12),
    )  # fmt: skip
    if rng.random() < 0.4:
        return rng.choice(special)
    base = dt.datetime(rng.choice((1, 1000, 1700, 1950, 2020, 2026, 9990)), 1, 1)
    step = rng.choice((1, 1_000, 1_000_000, 60_000_000))
    return base + dt.timedelta(
        days=rng.randrange(3_000), microseconds=rng.randrange(86_400_000_000 // step) * step
    )
