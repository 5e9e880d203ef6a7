"""Names that users give to columns and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

_COLUMNS = (
    "id", "name", "city", "zone", "b", "a", "Z", "_x", "x1", "x10", "x2", "1st", "2nd", "9", "größe",
    "Ünï", "日付", "имя", "ονομα", "שם", "😀", "a.b", "a.b.c", "a-b", "a/b", "a:b", "a#b", "a%20b", "a'b",
    'a"b', "a`b", "a\\b", "a|b", "a*", "a?", "a[0]", "a<b>", "@data", "$x", "&", "+", "!", "select",
    "from", "order", "table", "null", "true", "timestamp", "date", "value", "key", "element", "interval",
    "group", "_metadata", "_c0", "_c1", "_corrupt_record", "end", "case", "Id2", "CamelCase", "snake_case",
    "UPPER", "e\u0301", "col", "file_path", "input_file_name", "current_date", "data", "scope_key",
    "scope_found", "uri", "path", "part=1", "year",
)  # fmt: skip
REFUSED = " ,;{}()\n\t="
"""What Delta takes in no name of a column."""
_BAD_FOR_DELTA = (
    "a b",
    " lead",
    "trail ",
    "a,b",
    "a;b",
    "{a}",
    "f(x)",
    "a=b",
    "a\tb",
    "Price (€)",
    "x, y; z",
)
FILES = (
    "part-0", "data", "a b", "[x]", "[a-z]", "{a,b}", "{x}", "star*", "q?", "back\\slash", "grüße", "日本",
    "%20", "a%2Fb", "a+b", "a#b", "a&b=c", "a'b", 'a"b', "a;b", "(1)", "~tmp~", "e\u0301", "year=2026",
    "a..b", "x.csv", "$x", "^", "@", "!x", "[!x]", "**", "{", "}", "[", "]", "-", "😀", "a,b", "nul",
    "a|b", "<x>",
)  # fmt: skip


def columns(rng: random.Random, count: int) -> list[str]:
    """Return names of columns, no two of which are the same whatever the case."""
    odd = rng.random()
    found: dict[str, str] = {}
    while len(found) < count:
        pick = rng.random()
        if odd < 0.15 and pick < 0.3:
            name = rng.choice(_BAD_FOR_DELTA)
        elif pick < 0.6:
            name = rng.choice(_COLUMNS)
        else:
            name = rng.choice(("c", "Col", "v_", "ä", "")) + rng.choice("zyxabc") + str(rng.randrange(200))
        found.setdefault(name.lower(), name)
    names = list(found.values())
    rng.shuffle(names)
    return names


def files(rng: random.Random, count: int, suffix: str) -> list[str]:
    """Return names of files, in folders or not; tidy and odd ones stand beside each other."""
    found: dict[str, None] = {}
    while len(found) < count:
        name = rng.choice(FILES) + (str(rng.randrange(9)) if rng.random() < 0.5 else "")
        folder = rng.choice(("", "", "", "sub/", "[f]/", "{f,g}/", "a b/", "10:30/", "k=v/", "ä*/"))
        found[f"{folder}{name}{suffix}"] = None
    return list(found)
