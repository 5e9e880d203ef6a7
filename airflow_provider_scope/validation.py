"""Checks that the specs share, and the way between a spec and a plain dict.

A value that is still a template (``{{ … }}``, ``{% … %}``) or an XComArg cannot be checked when the DAG
is parsed. It is let through then, and checked when the task runs, rendered.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from airflow_provider_scope.exceptions import InputError

_T = TypeVar("_T")


def is_deferred(value: object) -> bool:
    """Tell whether a value is known only when the task runs."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    # Not by `resolve`, which a pathlib.Path has too.
    return hasattr(value, "iter_references")


def bad(argument: str, value: object, expected: str, do: str = "") -> InputError:
    return InputError(
        f"{argument}={value!r} is not valid: expected {expected}.",
        kept="everything; nothing was read or written",
        do=do or "correct the argument in the DAG file",
    )


def set_field(spec: object, name: str, value: object) -> None:
    """Set a field of a frozen spec while it is being made."""
    object.__setattr__(spec, name, value)


def text(argument: str, value: object) -> None:
    """Refuse a value that is not text, or is empty."""
    if not is_deferred(value) and not (isinstance(value, str) and value.strip()):
        raise bad(argument, value, "text that is not empty")


def one_of(argument: str, value: object, choices: Sequence[str], do: str = "") -> None:
    if not is_deferred(value) and value not in choices:
        raise bad(argument, value, "one of " + ", ".join(map(repr, choices)), do)


def number(argument: str, value: Any, *, at_least: float, whole: bool = True) -> Any:
    """Check a number or None; text that a template rendered to a number becomes one."""
    if value is None or is_deferred(value):
        return value
    result = value
    if isinstance(value, str):
        try:
            result = int(value) if whole else float(value)
        except ValueError:
            result = None
    types = int if whole else (int, float)
    if (
        isinstance(result, bool)
        or not isinstance(result, types)
        or not at_least <= result < float("inf")  # so written, it refuses NaN as well
    ):
        kind = "a whole number" if whole else "a number (int or float)"
        raise bad(argument, value, f"{kind}, at least {at_least:g}, or None")
    return result


def switch(argument: str, value: Any) -> bool | None:
    """Read a boolean, or the text to which a template rendered it; None if it is not rendered yet."""
    if isinstance(value, bool):
        return value
    if is_deferred(value):
        return None
    switches = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
    if isinstance(value, str) and value.strip().lower() in switches:
        return switches[value.strip().lower()]
    if value is None or value == "None":
        return False
    if value in (0, 1):  # of a template that is rendered natively
        return bool(value)
    raise bad(argument, value, "True or False, or a template that gives one of them")


def as_text(value: Any) -> Any:
    """Make text of numbers where text is meant: rendered natively, ``"{{ ds_nodash }}"`` is a number."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    if isinstance(value, dict):
        return {name: as_text(item) for name, item in value.items()}
    return str(value) if type(value) in (int, float) else value


def texts(argument: str, value: Any, *, needed: bool = False) -> Any:
    """Check several texts and give them as a tuple; a single text becomes a tuple of one.

    A template alone stays as it is: rendered natively, it may give several texts.
    """
    if is_deferred(value):
        return value
    if value is None and not needed:
        return ()
    result = (value,) if isinstance(value, str) else value
    if not isinstance(result, Sequence):
        raise bad(argument, value, "a list of texts")
    for item in result:
        text(argument, item)
    if needed and not result:
        raise bad(argument, value, "at least one")
    return tuple(result)


def mapping(argument: str, value: Any) -> None:
    """Refuse a value that is neither None nor a mapping with text keys."""
    if value is None or is_deferred(value):
        return
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise bad(argument, value, "a mapping with text keys")


def to_dict(spec: Any) -> dict[str, Any]:
    """Give a spec's fields that differ from their defaults as a plain dict; a dict is copied."""
    if isinstance(spec, Mapping):
        return dict(spec)
    result = {}
    for item in fields(spec):
        value = getattr(spec, item.name)
        if item.default is MISSING or value is not item.default:
            # Lists, because Airflow renders templates inside lists and gives tuples back as they are.
            result[item.name] = list(value) if isinstance(value, tuple) else value
    return result


def unknown_names(
    owner: str,
    kind: str,
    used: Iterable[str],
    names: Sequence[str],
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """Refuse names that the owner does not have; Python's own error suggests no similar one.

    :param kind: What is named: ``"argument"`` or ``"field"``.
    :param used: The names that the user wrote.
    :param names: All names that the owner has.
    :param elsewhere: Names that belong in another place -> what to write there.
    :raises InputError: A used name is not one of the owner's.
    """
    unknown = [name for name in used if name not in names]
    if unknown:
        raise InputError(
            f"{owner} has no {kind} {', '.join(unknown)}.",
            kept="everything; nothing was read or written",
            do=", and ".join(f"set {elsewhere[name]}" for name in unknown if elsewhere and name in elsewhere)
            or _spelling(unknown, names),
        )


def with_known_fields(cls: type[_T]) -> type[_T]:
    """Let a spec refuse a field that it does not have with an ``InputError``."""
    make = cls.__init__
    names = [item.name for item in fields(cls)]  # type: ignore[arg-type]

    @functools.wraps(make)
    def init(self: _T, *args: Any, **values: Any) -> None:
        unknown_names(cls.__name__, "field", values, names)
        make(self, *args, **values)

    cls.__init__ = init  # type: ignore[method-assign, assignment]
    return cls


def _spelling(unknown: Iterable[str], names: Sequence[str]) -> str:
    close = {name: difflib.get_close_matches(name, names, n=1) for name in unknown}
    meant = [f"{match[0]!r} for {name!r}" for name, match in close.items() if match]
    return f"write {', '.join(meant)}" if meant else "correct the spelling in the DAG file"


def from_dict(cls: type[_T], argument: str, value: Any) -> _T:
    """Make a spec out of a plain dict.

    :raises InputError: A field is unknown or missing, or the spec itself refuses a value.
    """
    if isinstance(value, cls):
        return value
    names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
    if not isinstance(value, Mapping):
        raise bad(argument, value, f"{cls.__name__}(…) or a dict with the keys {', '.join(names)}")
    unknown = sorted(str(key) for key in value if key not in names)
    if unknown:
        raise InputError(
            f"{argument} has unknown keys: {', '.join(unknown)}. {cls.__name__} has {', '.join(names)}.",
            kept="everything; nothing was read or written",
            do=_spelling(unknown, names),
        )
    needed = [f.name for f in fields(cls) if f.default is MISSING and f.name not in value]  # type: ignore[arg-type]
    if needed:
        raise InputError(
            f"{argument} needs {', '.join(needed)}.",
            kept="everything; nothing was read or written",
            do=f"add it: {argument}={{{needed[0]!r}: …}}",
        )
    kinds = {item.name: str(item.type) for item in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: as_text(item) if _is_text(kinds[name]) else item for name, item in value.items()})


def _is_text(kind: str) -> bool:
    """Tell by the annotation of a field whether it takes text, and no number."""
    return "str" in kind and not any(not_text in kind for not_text in ("bool", "int", "float", "Any"))
