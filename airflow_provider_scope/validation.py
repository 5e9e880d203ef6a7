"""Checks of what users write, by the annotations of a spec; and the way between a spec and a plain dict.

A value that is still a template (``{{ … }}``, ``{% … %}``, ``{# … #}``) or an XComArg cannot be checked when
the DAG is parsed. It is let through then, and checked when the task runs, rendered.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.values import milliseconds

_T = TypeVar("_T")
_LIST = re.compile(r"""\[(?:(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?:, ?)?)+]""", re.DOTALL)
"""What a template gives of a list, if it gives text."""


def is_deferred(value: object) -> bool:
    """Whether a value is known only when the task runs."""
    if isinstance(value, str):
        return any(mark in value for mark in ("{{", "{%", "{#"))
    # Not by `resolve`, which a pathlib.Path has too.
    return hasattr(value, "iter_references")


def bad(argument: str, value: object, expected: str, do: str = "") -> InputError:
    return InputError(
        f"{argument}={value!r} is not valid: expected {expected}.",
        kept="everything; nothing was read or written",
        do=do or "correct the argument in the DAG file",
    )


# ---- checks of single values: each returns the value as a spec holds it ----


def text(argument: str, value: Any) -> Any:
    if not is_deferred(value) and not (isinstance(value, str) and value.strip()):
        raise bad(argument, value, "text that is not empty")
    return value


def one_of(argument: str, value: Any, choices: Sequence[str], do: str = "") -> Any:
    if not is_deferred(value) and value not in choices:
        raise bad(argument, value, "one of " + ", ".join(map(repr, choices)), do)
    return value


def number(argument: str, value: Any, *, at_least: float, whole: bool = True, needed: bool = False) -> Any:
    """Check a number, or None if it is not ``needed``; text that a template rendered to one becomes it."""
    if (value is None and not needed) or is_deferred(value):
        return value
    if value == "None" and not needed:  # a template of what does not exist
        return None
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
        raise bad(argument, value, f"{kind}, at least {at_least:g}{'' if needed else ', or None'}")
    return result


def share(argument: str, value: Any) -> Any:
    """Check a share of something, from 0 to 1, or None."""
    result = number(argument, value, at_least=0, whole=False)
    if isinstance(result, int | float) and result > 1:
        do = f"write {result / 100:g} for {result:g} percent"
        raise bad(argument, value, "a share from 0 to 1, or None", do)
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


def instant_ms(argument: str, value: Any) -> int | None:
    """Convert a time with its zone to milliseconds since the epoch; None for None, or for a template."""
    if value is None or is_deferred(value):
        return None
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            moment = None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise bad(argument, value, "a time with its zone, such as '2026-01-01T00:00:00+00:00'")
    return milliseconds(moment)


def instant(argument: str, value: Any) -> Any:
    instant_ms(argument, value)
    return value


def is_given(value: Any) -> bool:
    """Whether there is a value: a template of a time that does not exist renders to "" or to "None"."""
    return not (value is None or (isinstance(value, str) and value.strip() in ("", "None")))


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
    if isinstance(value, str) and _LIST.fullmatch(value.strip()):
        # As a regular expression, it would be a set of characters, and found in any name.
        do = "set render_template_as_native_obj=True in the Dag, so that the template gives the list itself"
        raise bad(argument, value, "a list of texts, and not the text of a list", do)
    if not isinstance(value, Sequence):
        raise bad(argument, value, "a list of texts")
    result = each_of(value)
    for item in result:
        text(argument, item)
    if needed and not result:
        raise bad(argument, value, "at least one")
    return result


def each_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return texts as a tuple; a single one, which only looks like a template, as a tuple of one."""
    return (texts,) if isinstance(texts, str) else tuple(texts)


def patterns(argument: str, value: Any, *, ending: str) -> Any:
    """Check regular expressions that are searched in names of files.

    :param ending: Of an example, in the advice.
    """
    result = texts(argument, value, needed=True)
    for pattern in () if is_deferred(result) else result:
        try:
            re.compile("" if is_deferred(pattern) else pattern)
        except re.error as err:
            raise bad(
                argument,
                pattern,
                f"a regular expression ({err})",
                f"regular expressions are searched in the file's name; for *.{ending} write "
                f"r'.*\\.{ending}$'",
            ) from err
    return result


def mapping(argument: str, value: Any) -> Any:
    """Refuse a value that is neither None nor a mapping with text keys."""
    if value is None or is_deferred(value):
        return value
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise bad(argument, value, "a mapping with text keys")
    return value


# ---- checks of fields, by their annotations ----

Count = Annotated[int, partial(number, at_least=1)]
Whole = Annotated[int, partial(number, at_least=0)]
Amount = Annotated[float, partial(number, at_least=0, whole=False)]
Share = Annotated[float, share]
Flag = Annotated[bool, switch]
Several = Annotated[Sequence[str], partial(texts, needed=True)]
Instant = Annotated[datetime | str, instant]
"""An annotation with the check of its values; with ``| str`` for templates of what is no text."""


def check(argument: str, value: Any, hint: Any) -> Any:
    """Check a value by an annotation: the check that it holds, or that of its type.

    A template passes. What has several types is left to the spec, except None and the text of a template.

    :return: The value as a spec holds it.
    :raises InputError: It is not valid.
    """
    is_union = get_origin(hint) in (Union, UnionType)
    kind, *more = [part for part in (get_args(hint) if is_union else (hint,)) if part is not NoneType]
    is_optional = is_union and NoneType in get_args(hint)
    if is_deferred(value) or (value is None and is_optional) or (more and more != [str]):
        return value
    origin = get_origin(kind)
    if origin is Annotated:
        return kind.__metadata__[0](argument, value)
    if origin is Literal:
        return one_of(argument, value, get_args(kind))
    if origin is Mapping:
        return mapping(argument, value)
    if kind == Sequence[str]:
        return texts(argument, value)
    return text(argument, value) if kind is str and not more else value


def checked(cls: type[_T]) -> type[_T]:
    """Let a spec check its fields by their annotations, and refuse a field that it does not have.

    What a field alone does not show is checked by its ``__post_init__``.
    """
    make = cls.__init__
    names = [item.name for item in fields(cls)]  # type: ignore[arg-type]

    @functools.wraps(make)
    def init(self: _T, *args: Any, **values: Any) -> None:
        unknown_names(cls.__name__, "field", values, names)
        hints = _hints(cls)
        make(self, *args, **{name: check(name, value, hints[name]) for name, value in values.items()})

    cls.__init__ = init  # type: ignore[method-assign, assignment]
    return cls


_hints: Callable[[Any], dict[str, Any]] = functools.cache(partial(get_type_hints, include_extras=True))


# ---- names of fields; dicts ----


def to_dict(spec: Any) -> dict[str, Any]:
    """Make a plain dict of a spec's fields that differ from their defaults; a dict is copied."""
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
    hints = _hints(cls)
    return cls(**{name: as_text(item) if _is_text(hints[name]) else item for name, item in value.items()})


def _is_text(hint: Any) -> bool:
    """Whether a field takes text, and no number."""
    types = {*_types(hint)}
    return str in types and not types & {bool, int, float, Any}


def _types(hint: Any) -> Iterable[Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is None or origin is Literal:
        return [hint]
    return [kind for part in (parts[:1] if origin is Annotated else parts) for kind in _types(part)]
