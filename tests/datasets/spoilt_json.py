"""One thing that is wrong in a JSON file.

A mutilation gives the bytes of the file, or None where a source has nothing to be spoilt in this way.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.datasets import json_files

if TYPE_CHECKING:
    import random

    from tests.datasets.generator import Case, File
    from tests.datasets.kinds import Kind

JSON_TOKENS = {
    "boolean": ('"true"', "1", '"x"', "[true]"),
    "tinyint": ("128", "1.5", '"x"', "true", "{}"),
    "smallint": ("32768", "-32769", "1.5", '"x"', "[1]"),
    "int": ("2147483648", "1.5", '"x"', "true", "1e10"),
    "bigint": ("9223372036854775808", "1.5", '"x"', "[]"),
    "float": ('"x"', "1e39", "true", "{}"),
    "double": ('"x"', "1e400", "-1e400", "true", "[1.0]"),
    "date": ("20454", '"2026-01-01 xyz"', '"2026-02-30"', "true", '"x"', '"1"', '"20260101"'),
    "timestamp": (
        "1767225600000", "1767225600", '"2026-01-01 xyz"', '"12:30"', '"2026-01-01 00:00:00.1234567"', "true",
    ),
    "timestamp_ntz": ("1767225600000", '"2026-01-01 xyz"', '"12:30"', "true"),
    "binary": ("1", '"not base 64!"', "true"),
    "string": (),
    "array": ('"x"', "1", "{}"),
    "map": ('"x"', "1", "[1]"),
    "struct": ('"x"', "1", "[1]"),
}  # fmt: skip
"""What is no value of the type."""


def bad_token(kind: Kind, rng: random.Random) -> str | None:
    """Return JSON that is no value of a type."""
    if kind.name == "decimal":
        precision, scale = kind.digits
        return rng.choice((f"1{'0' * (precision - scale)}", f"0.{'0' * scale}1", '"x"', "true"))
    return rng.choice(JSON_TOKENS[kind.name] or (None,))


class Objects:
    """The objects of a JSON file, as tokens, to be changed and written again."""

    def __init__(self, case: Case, file: File, rng: random.Random) -> None:
        self.case, self.rng = case, rng
        self.multiline = "multiLine" in case.options
        kinds = [kind for _, kind in case.columns]
        names = [name for name, _ in case.columns]
        self.pairs = [
            [(n, json_files.token(v, k, rng)) for n, v, k in zip(names, row, kinds, strict=True)]
            for row in file.rows
        ]
        self.at = rng.randrange(len(self.pairs))

    def objects(self) -> list[str]:
        return [json_files.members(pairs, self.rng) for pairs in self.pairs]

    def bytes(self, objects: list[str] | None = None) -> bytes:
        objects = self.objects() if objects is None else objects
        if self.multiline:
            return ("[\n" + ",\n".join(objects) + "\n]\n").encode()
        return "".join(f"{one}\n" for one in objects).encode()

    def struct(self) -> int | None:
        found = [i for i, (_, kind) in enumerate(self.case.columns) if kind.name == "struct"]
        return self.rng.choice(found) if found else None


def json_second_object_on_a_line(data: Objects) -> bytes | None:
    if data.multiline:
        return data.bytes() + data.bytes()
    objects = data.objects()
    objects[data.at] += data.rng.choice(("", " ", "\t")) + data.rng.choice(objects)
    return data.bytes(objects)


def json_text_behind_an_object(data: Objects) -> bytes | None:
    tail = data.rng.choice(("x", ",", "}", "]", "1", '"', "null", "{", "// x", "\0", "NaN"))
    if data.multiline:
        return data.bytes() + tail.encode()
    objects = data.objects()
    objects[data.at] += tail
    return data.bytes(objects)


def json_unknown_key(data: Objects) -> bytes | None:
    data.pairs[data.at].insert(data.rng.randint(0, len(data.case.columns)), ("nobody declared it", "1"))
    return data.bytes()


def json_key_in_another_case(data: Objects) -> bytes | None:
    found = [i for i, (name, _) in enumerate(data.pairs[data.at]) if name.swapcase() != name]
    if not found:
        return None
    index = data.rng.choice(found)
    name, token = data.pairs[data.at][index]
    data.pairs[data.at][index] = (name.swapcase(), token)
    return data.bytes()


def json_repeated_key(data: Objects) -> bytes | None:
    pair = data.rng.choice(data.pairs[data.at])
    data.pairs[data.at].insert(data.rng.randint(0, len(data.case.columns)), pair)
    return data.bytes()


def json_value_of_another_type(data: Objects) -> bytes | None:
    usable = [i for i, (_, kind) in enumerate(data.case.columns) if kind.name != "string"]
    if not usable:
        return None
    index = data.rng.choice(usable)
    name, kind = data.case.columns[index]
    token = bad_token(kind, data.rng)
    assert token is not None
    data.pairs[data.at][index] = (name, token)
    return data.bytes()


def json_bytes_that_are_not_utf8(data: Objects) -> bytes | None:
    usable = [i for i, (_, kind) in enumerate(data.case.columns) if kind.name == "string"]
    if not usable:
        return None
    index = data.rng.choice(usable)
    data.pairs[data.at][index] = (data.case.columns[index][0], '"@@@"')
    bad = data.rng.choice((b"\xff", b"\xe4", b"\xc3", b"\xc0\xaf", b"a\xf6b"))
    return data.bytes().replace(b"@@@", bad)


def json_cut_in_an_object(data: Objects) -> bytes | None:
    whole = data.bytes().rstrip()
    return whole[: -data.rng.randint(1, min(8, len(data.objects()[-1])))]


def json_line_that_is_no_object(data: Objects) -> bytes | None:
    objects = data.objects()
    objects.insert(data.at, data.rng.choice(("1", '"x"', "true", "x", "[1]", "undefined")))
    return data.bytes(objects)


def json_unknown_key_inside(data: Objects) -> bytes | None:
    index = data.struct()
    if index is None:
        return None
    data.pairs[data.at][index] = (data.case.columns[index][0], '{"nobody declared it":1}')
    return data.bytes()


def json_repeated_key_inside(data: Objects) -> bytes | None:
    index = data.struct()
    if index is None:
        return None
    name = json.dumps(data.case.columns[index][1].names[0])
    data.pairs[data.at][index] = (data.case.columns[index][0], f"{{{name}:null,{name}:null}}")
    return data.bytes()


def json_key_in_another_case_inside(data: Objects) -> bytes | None:
    index = data.struct()
    if index is None:
        return None
    found = [name for name in data.case.columns[index][1].names if name.swapcase() != name]
    if not found:
        return None
    name = json.dumps(data.rng.choice(found).swapcase())
    data.pairs[data.at][index] = (data.case.columns[index][0], f"{{{name}:null}}")
    return data.bytes()


def json_repeated_key_in_a_map(data: Objects) -> bytes | None:
    found = [i for i, (_, kind) in enumerate(data.case.columns) if kind.name == "map"]
    if not found:
        return None
    index = data.rng.choice(found)
    data.pairs[data.at][index] = (data.case.columns[index][0], '{"k":null,"k":null}')
    return data.bytes()


def json_half_of_a_letter(data: Objects) -> bytes | None:
    """Half of a pair of UTF-16 is no letter, and no text of UTF-8 holds it."""
    usable = [i for i, (_, kind) in enumerate(data.case.columns) if kind.name == "string"]
    if not usable:
        return None
    index = data.rng.choice(usable)
    half = data.rng.choice(('"\\ud800"', '"a\\udc00b"', '"\\ud83dx"'))
    data.pairs[data.at][index] = (data.case.columns[index][0], half)
    return data.bytes()
