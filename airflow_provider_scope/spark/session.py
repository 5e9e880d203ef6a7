"""What holds for a whole session of Spark: its settings and those of Java, and what it says of a failure."""

from __future__ import annotations

import importlib
import json
import re
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, DeltaJarsError, InputError
from airflow_provider_scope.failures import CAUSE_LENGTH
from airflow_provider_scope.spark import settings
from airflow_provider_scope.spark.plan import EVENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession


def make_exact(spark: SparkSession) -> None:
    """Set in a session, and in its driver's Java, what may not be left to the defaults of whoever runs it.

    In Turkish, the lower case of I is not i: names of columns and types would not be found. And where Java's
    own property names another zone, Delta reads a table's whole log again to verify each commit
    (``spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled``). Java of other machines
    has zone and language by the application's settings.
    """
    java: Any = spark._jvm.java  # type: ignore[union-attr]
    java.util.TimeZone.setDefault(java.util.TimeZone.getTimeZone("UTC"))
    java.lang.System.setProperty("user.timezone", "UTC")
    java.util.Locale.setDefault(java.util.Locale.ROOT)
    for name, setting in settings.EXACT.items():
        spark.conf.set(name, setting.value)


@contextmanager
def with_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a block, and restore the old values when it ends."""
    before = {name: spark.conf.get(name, None) for name in values}
    # Each call into Java counts: of the settings of an application of ours, a load changes none.
    changed = {name: old for name, old in before.items() if old != values[name]}
    try:
        for name in changed:
            spark.conf.set(name, values[name])
        yield
    finally:
        for name, old in changed.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


_copies: list[Callable[[str], None]] = []
"""At most one."""


def emit(**event: Any) -> None:
    """Write an event as a line of the output, and to whoever asked for a copy."""
    line = json.dumps(event) + "\n"
    sys.stdout.write(EVENT + line)
    sys.stdout.flush()
    for copy in _copies:
        copy(line)


def copy_events(copy: Callable[[str], None]) -> None:
    """Hand the line of each event from now on to this function, too."""
    _copies[:] = [copy]


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
_MAX_COLUMNS = re.compile(
    r"TextParsingException: java\.lang\.ArrayIndexOutOfBoundsException - Index (\d+) out of bounds"
)
SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What Spark raises."""
NANOSECONDS = "nanos > 999999999 or < 0"
"""Said of a time in an ORC file, without the file: the value is taken out of the reader's vector later."""
TOO_MANY_FIELDS = "TooManyFields"
"""In place of a class of Java, of which there is none for this."""


def short_cause(err: Exception) -> str:
    """Return the innermost cause of an error of Spark, without its stack."""
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
    parts = [*[cause for cause in named if "FAILED_READ_FILE" in cause][:1], *named[-1:], causes[-1]]
    return "; ".join(cause[:CAUSE_LENGTH] for cause in dict.fromkeys(parts))


def whole_text(err: Exception) -> str:
    """Return the text of an error of Spark, with all its causes."""
    return f"{err}\n{getattr(err, '_stackTrace', None) or ''}"


def unread_file(err: Exception) -> tuple[str, str] | None:
    """Return the path of the file that Spark failed to read, and the innermost cause with its class.

    :return: None if the error is about something else.
    """
    text = whole_text(err)
    unread = _UNREAD.search(text)
    if unread is None:
        return None
    # Of a footer that it cannot read, Spark names the path itself, and else its URI.
    file = unread["file"] if "FOOTER" in unread[0] else unquote(unread["file"])
    limit = _MAX_COLUMNS.search(text)
    if limit:  # what lies after it is an index out of bounds
        return file, f"{TOO_MANY_FIELDS}: a record has more than {int(limit[1]):,} fields"
    causes = [match for match in _CAUSE.finditer(text) if match["by"]]
    cause = " ".join(causes[-1].group().removeprefix("Caused by: ").split()) if causes else ""
    return file, cause


_HELPERS = "pyspark.testing.utils"


class _WithoutNumpy(ModuleType):
    """Stands for pyspark's helpers of tests; gives way to them when more is asked for than numpy."""

    have_numpy = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(self.__name__, None)
        return getattr(importlib.import_module(self.__name__), name)


def leave_out_numpy() -> None:
    """Answer pyspark that there is no numpy, as on a machine without it.

    It asks its helpers of tests at the first call into Java, and they import pandas, pyarrow and more: 1.5 s
    of CPU time. The application has no value of numpy to give to Java.
    """
    sys.modules.setdefault(_HELPERS, _WithoutNumpy(_HELPERS))


# ---- Java's zone: what readers of ORC files and drivers of databases take times without a zone for ----
# In most zones an hour of a year is missing, so that such times cannot be put right afterwards: Java has to
# be in UTC wherever rows are read.

_MARK = "@@airflow-provider-scope-zone "
_FOUND = re.compile(rf"{_MARK}([\w/+:-]+)")
_ZONE = "java_method('java.time.ZoneId', 'systemDefault')"
_IS_UTC = (
    # Once for each task: a call by reflection for each row would take longer than to read the row.
    f"if(monotonically_increasing_id() % {1 << 33} > 0, true, "
    f"if({_ZONE} IN ('UTC', 'Etc/UTC', 'GMT', 'Z'), true, raise_error('{_MARK}' || {_ZONE})))"
)


def in_utc(rows: DataFrame) -> DataFrame:
    """Let reading fail on a machine whose Java is in another zone than UTC."""
    return rows.where(_IS_UTC)


def zone_error(text: str) -> InputError | None:
    """Return the error where ``in_utc`` failed, by the text of Spark's error; None for any other error."""
    zone = _FOUND.search(text)
    if zone is None:
        return None
    return InputError(
        f"Java is in the time zone {zone[1]} where rows are read: times without a zone would change.",
        kept=NO_ROW_WRITTEN,
        do="leave -Duser.timezone out of `spark.executor.extraJavaOptions` in `conf` of the engine and in "
        "spark-defaults.conf, or set it to UTC there; the next run loads the batch",
    )


def compiler_of(spark: SparkSession, source: str) -> Any:
    """Compile a class of Java in the driver, by Spark's own compiler; return that: it has the class."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler


DELTA_LOG = "org.apache.spark.sql.delta.DeltaLog"


def check_delta(spark: SparkSession) -> None:
    """Check that this Spark has Delta's jars: without them, a package of Java would not be callable.

    :raises DeltaJarsError: It has not.
    """
    # By its whole name: for each part of it, Java would look through all jars.
    if isinstance(getattr(spark._jvm, DELTA_LOG), JavaPackage):
        raise DeltaJarsError(
            f"This Spark {spark.version} has no class {DELTA_LOG}: Delta's jars are not on its machine.",
            kept=NO_ROW_WRITTEN,
            do="leave `packages` and `jars` out, so that they are downloaded, or correct `jars`; "
            "with `packages=()`, put them on the machines of the cluster",
        )
