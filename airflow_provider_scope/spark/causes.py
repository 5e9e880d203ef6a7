"""What Spark says of a failure, in a line or whole."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_scope.core.failures import CAUSE_LENGTH

_CAUSE = re.compile(
    r"^(?P<by>Caused by: )?[\w.$]+(?:Exception|Error): (?P<text>.*?)"
    r"(?=\n\s+at |\nCaused by: |\n\s*\.\.\. \d|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""One cause of a Java stack trace; its text may have several lines."""
_PLAN_OR_SQL = re.compile(r";\s*\n|\n\s*== SQL")
"""What follows the words of an error: the plan of the query, or its text."""
_UNREAD = re.compile(
    r"\[FAILED_READ_FILE[.\w]*\] Encountered error while reading file (?P<file>.*?)\.\s+SQLSTATE"
)


def short_cause(err: Exception) -> str:
    """Give the innermost cause of an error of Spark, without its stack."""
    if isinstance(err, Py4JJavaError):
        text = str(err.java_exception.toString())
        trace = str(err)
    elif isinstance(err, PySparkException):
        text = str(err).split("\n\nJVM stacktrace")[0]
        trace = str(getattr(err, "_stackTrace", "") or "")
    else:
        text, trace = f"{type(err).__name__}: {err}", ""
    causes = [" ".join(m["text"].split()) for m in _CAUSE.finditer(trace) if m["by"]]
    if not causes:
        words = " ".join(_PLAN_OR_SQL.split(text.strip())[0].split())
        return words[:CAUSE_LENGTH] or type(err).__name__
    # Outer ones say "task failed"; the file, the newest named condition and the innermost say why.
    named = [cause for cause in causes if cause.startswith("[")]
    told = [*[cause for cause in named if "FAILED_READ_FILE" in cause][:1], *named[-1:], causes[-1]]
    return "; ".join(cause[:CAUSE_LENGTH] for cause in dict.fromkeys(told))


def whole_text(err: Exception) -> str:
    """Give all that Spark says of an error, causes included."""
    return f"{err}\n{getattr(err, '_stackTrace', None) or ''}"


def unread_file(err: Exception) -> tuple[str, str] | None:
    """Give the file that Spark failed to read, as Spark spells it, and the innermost cause with its class.

    :return: None if the error is about something else.
    """
    text = whole_text(err)
    found = _UNREAD.search(text)
    if found is None:
        return None
    causes = [match for match in _CAUSE.finditer(text) if match["by"]]
    said = " ".join(causes[-1].group().removeprefix("Caused by: ").split()) if causes else ""
    return found["file"], said
