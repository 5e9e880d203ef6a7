"""What Spark, Java and others write about a failure: what in it is the cause, and whether it may pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from airflow_provider_scope.delta.commit import repair_advice

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["sql", "setting", "not seen", "passing"]
"""What failed: the SELECT on these rows; a setting; a path that Spark does not see; or something that may
have passed by the next try."""

CAUSE_LENGTH = 1000
"""Characters of a cause that a message holds; the rest is in Spark's log."""
_STATE = re.compile(r"SQLSTATE: (\w{5})\b")
_OF_SQL = ("0A", "21", "22", "23", "42", "44", "P0")
"""First characters of the states that the same SELECT reaches on the same rows each time: data, constraints,
syntax."""
_OF_A_ROW = "DeltaInvariantViolationException"
"""Of a row that the table does not allow, such as by a CHECK: the texts of Delta's errors have no state."""
_NO_PATH = "42K03"
_OF_A_SETTING = re.compile(
    r"\[(INVALID_CONF_VALUE|INVALID_DRIVER_MEMORY|INVALID_EXECUTOR_MEMORY|CANNOT_MODIFY_CONFIG)"
)
_LIKE_A_SETTING = re.compile(
    r"flag can be true or false|must be a positive number|to unknown queue|java\.lang\.NumberFormatException"
    r"|ClassNotFoundException|driver runs in Python|Must specify the \w+ container image"
    r"|Cannot run program \"[^\"]*\"[^:]*: error=2,"
)
"""Texts about a setting to which Spark gives no error condition."""
_OF_A_JOB = "Job aborted"
"""An error with this text is about a job's rows and machines, not about the settings."""

_REFUSED = re.compile(
    r"(?i)permission denied|operation not permitted|access ?(is )?denied|AccessControlException"
)

_NO_JVM = re.compile(
    r"Error: Could not create the Java Virtual Machine|Error: A fatal exception has occurred"
    r"|Error occurred during initialization of VM"
)
_CANNOT_START_NOW = re.compile(r"reserve|allocate|insufficient memory", re.IGNORECASE)
_NOISE = re.compile(r"Picked up |WARNING: |\s*$")
_THROWN = re.compile(
    r"(?P<how>Exception in thread \"[^\"]*\" |Caused by: |: )?"
    r"(?P<cls>(?:[\w$]+\.)*[A-Z][\w$]*(?:Exception|Error))(?:: (?P<text>.*))?$"
)
_LOGGED = re.compile(r"\d\d/\d\d/\d\d [\d:]{8} (?:WARN|INFO) ")
"""What Spark logs while all is well."""
_NO_TEXT = re.compile(r"\s+at |\s+\.\.\. \d|\d\d/\d\d/\d\d |Traceback |\s*$")


def kind_of(text: str) -> Kind:
    """Classify an error of Spark by its whole text, causes included.

    The innermost condition decides; it comes last.
    """
    if _OF_A_SETTING.search(text):
        return "setting"
    states = _STATE.findall(text)
    state = states[-1] if states else ""
    if state == _NO_PATH:
        return "not seen"
    if state.startswith(_OF_SQL) or _OF_A_ROW in text:
        return "sql"
    return "setting" if _LIKE_A_SETTING.search(text) and _OF_A_JOB not in text else "passing"


def is_refusal(text: str) -> bool:
    """Whether a failure is one of permissions, from the text of a disk, of Java or of deltalake."""
    return bool(_REFUSED.search(text))


_CHECKSUM = re.compile(r"Checksum error: \S*?(_delta_log/)?([^/\s]+) at \d")
"""Hadoop's text about a file on a disk that is not what it wrote, with the file's name."""
_IS_FULL = re.compile("No space left on device|Disk quota exceeded")
_NO_LINKS = re.compile(r"FileSystemException: \S.* -> .*: (Operation not|Function not impl)")
NO_LINKS_ADVICE = (
    "its file system has no hard links (exFAT and most mounts of object stores have none): use a disk that "
    "has them, or name the object store by its own URI"
)


def passing_advice(cause: str) -> str:
    """Return what to do about a failure that may pass."""
    if damaged_file := _CHECKSUM.search(cause):
        is_commit, name = damaged_file.groups()
        return (
            repair_advice(name)
            if is_commit
            else f"restore {name}, with the .{name}.crc beside it, from a copy"
        )
    if _IS_FULL.search(cause):
        return (
            "make room on the disks of the table, of its quarantine, and of Spark's own files "
            "(`spark.local.dir`). The next try runs the open batches again"
        )
    if _NO_LINKS.search(cause):
        return NO_LINKS_ADVICE
    if "OutOfMemoryError" in cause:
        return (
            "give Spark more memory (`spark.driver.memory` in `conf` of the engine; 1 GiB is the default), "
            "or make batches smaller. The next try runs the open batches again"
        )
    return "the next try runs the open batches again; if the error comes back, remove its cause"


def submit_cause(lines: Sequence[str]) -> tuple[str, bool]:
    """Find the cause in the output of a ``spark-submit`` that could not report it.

    :param lines: The end of the output.
    :return: The cause in one line, empty if there is none; and whether every other try would fail as well.
    """
    output = [line.rstrip() for line in lines if not _NOISE.match(line) and not _LOGGED.match(line)]
    if any(_NO_JVM.match(line) for line in output):
        reason = " ".join(line.strip() for line in output if not _NO_JVM.match(line))
        return f"Java does not start: {reason}"[:CAUSE_LENGTH], not _CANNOT_START_NOW.search(reason)
    thrown = _thrown(output)
    if thrown:
        return "; ".join(dict.fromkeys(thrown))[:CAUSE_LENGTH], kind_of(" ".join(thrown)) == "setting"
    named = [line for line in output if "Exception" in line or "Error" in line]
    return (named or output or [""])[-1].strip()[:CAUSE_LENGTH], False


def _thrown(lines: Sequence[str]) -> list[str]:
    """Return the last exception that was thrown and its innermost cause, after the first lack of memory."""
    exceptions: list[tuple[str, str]] = []
    is_text = False
    for line in lines:
        match = _THROWN.match(line)
        if match:
            exceptions.append((match["how"] or "", _named(match["cls"], match["text"])))
        elif is_text and not _NO_TEXT.match(line):
            exceptions[-1] = (exceptions[-1][0], f"{exceptions[-1][1]} {line.strip()}")
        else:
            is_text = False
        is_text = is_text or bool(match)
    # Whatever comes after it in the output follows from it.
    out_of_memory = [text for _, text in exceptions if text.startswith("java.lang.OutOfMemoryError")][:1]
    heads = [number for number, (how, _) in enumerate(exceptions) if how != "Caused by: "]
    last_chain = exceptions[heads[-1] :] if heads else exceptions
    if len(last_chain) > 1 and last_chain[-1][1].startswith("java.io.IOException: error="):
        last_chain.pop()  # the one before has this text, and the program that cannot be run
    return [*out_of_memory, *(text for _, text in (*last_chain[:1], *last_chain[-1:]))]


def _named(cls: str, text: str | None) -> str:
    """Return the class and text of an exception; a text of Spark's own needs no class."""
    if text and (text.startswith("[") or cls.startswith("org.apache.spark.")):
        return text
    return f"{cls}: {text}" if text else cls
