"""Sources of which one file is wrong in one thing. Each must be an error: it cannot be read as what it is."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.datasets import generator, spoilt_csv, spoilt_json, spoilt_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.datasets.generator import Case, File


def _named(module: ModuleType, prefix: str) -> dict[str, Callable[[Any], bytes | None]]:
    found = {name: work for name, work in vars(module).items() if name.startswith(prefix)}
    return {name: work for name, work in found.items() if callable(work)}


CSV = _named(spoilt_csv, "csv_")
JSON = _named(spoilt_json, "json_")
SEALED = _named(spoilt_sealed, "sealed_")
PACKED = ("gzip cut", "gzip with a byte changed", "gzip by name alone", "gzip without the name")


def spoilt(name: str, seed: int) -> Case:
    """Return a source of which one file is spoilt; it is the same for the same name and seed."""
    for candidate in _sources(name, seed):
        rng = random.Random(f"{name}/{candidate.seed}")
        filled = [file for file in candidate.files if file.rows]
        if not filled:
            continue
        file = rng.choice(filled)
        bad = _spoil(name, candidate, file, rng)
        if bad is not None:
            # Tidy names, and few files: nothing but the one thing may be why it is refused.
            others = [replace(one, name=_tidy(one, "good")) for one in candidate.files if one is not file][:1]
            files = [*others, replace(bad, name=_tidy(bad, "bad"))]
            rng.shuffle(files)
            return replace(candidate, seed=seed, files=files, with_uri=False)
    raise AssertionError(f"no source can be spoilt by {name}")


def _sources(name: str, seed: int) -> Iterator[Case]:
    if name in PACKED:
        kinds = ("csv", "json", "text")
    elif name in SEALED:
        kinds = ("parquet", "parquet", "orc")
    else:
        kinds = (name.partition("_")[0],)
    for step in range(100):
        found = generator.case(seed * 100 + step, kind=random.Random(f"{seed}/{step}").choice(kinds))
        if any("`" in column for column, _ in found.columns):
            continue
        if found.declared or name in {"sealed_cut", "sealed_without_its_footer", "sealed_text_instead"}:
            yield found


def _tidy(file: File, stem: str) -> str:
    last = [suffix for suffix in (".gz", ".bz2", ".deflate") if file.name.endswith(suffix)]
    return f"{stem}{''.join(last)}"


def _spoil(name: str, case: Case, file: File, rng: random.Random) -> File | None:
    if name in PACKED:
        return _unpackable(name, file, rng)
    if name in SEALED:
        content = SEALED[name](spoilt_sealed.Sealed(case, file, rng))
        return None if content is None else replace(file, content=content)
    if name in CSV:
        content = CSV[name](spoilt_csv.Sheet(case, file, rng))
    else:
        content = JSON[name](spoilt_json.Objects(case, file, rng))
    return None if content is None else generator.repacked(file, content)


def _unpackable(name: str, file: File, rng: random.Random) -> File | None:
    plain = generator.unpacked(file)
    if len(plain) < 40:
        return None
    stem = file.name
    for suffix in (".gz", ".bz2", ".deflate"):
        stem = stem.removesuffix(suffix)
    packed = gzip.compress(plain)
    if name == "gzip cut":
        return replace(file, name=f"{stem}.gz", content=packed[: rng.randrange(12, len(packed) - 8)])
    if name == "gzip with a byte changed":
        at = rng.randrange(len(packed) - 8, len(packed) - 4)  # the sum of what is inside
        return replace(
            file, name=f"{stem}.gz", content=packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]
        )
    if name == "gzip by name alone":
        return replace(file, name=f"{stem}.gz", content=plain)
    return replace(file, name=stem, content=packed)


ALL = (*CSV, *JSON, *SEALED, *PACKED)
