"""Every error this package raises on purpose.

Each message has the same three parts: what happened and on what, what was kept, and what to do or
what the next try does. ``is_retryable`` says whether running the same task again can help; operators
turn an error that is not retryable into ``AirflowFailException``. One heading per class in
``docs/errors.md``.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


NO_ROW_WRITTEN = "the table; no row of this batch was written, and the batch stays logged"
"""What is kept where a batch was checked and refused: ``kept`` of several errors."""


class ScopeProviderError(Exception):
    """Base of all errors of this package.

    :param what: What happened, and on what.
    :param kept: What is safe: what was written before, what was not touched.
    :param do: What to do, or what the next try does by itself.
    """

    is_retryable: ClassVar[bool] = False
    _by_name: ClassVar[dict[str, type[ScopeProviderError]]] = {}

    def __init__(self, what: str, *, kept: str = "", do: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.kept = kept
        self.do = do

    def __init_subclass__(cls, *, is_retryable: bool | None = None) -> None:
        super().__init_subclass__()
        cls._by_name[cls.__name__] = cls
        if is_retryable is not None:
            cls.is_retryable = is_retryable

    def __str__(self) -> str:
        lines = [self.what]
        if self.kept:
            lines.append(f"Kept: {self.kept}")
        if self.do:
            lines.append(f"What to do: {self.do}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling: Airflow moves errors between processes."""
        return (partial(type(self), kept=self.kept, do=self.do), (self.what,))

    def to_dict(self) -> dict[str, str]:
        """Return the class and the three parts, for events and JSON."""
        return {"type": type(self).__name__, "what": self.what, "kept": self.kept, "do": self.do}

    @classmethod
    def from_dict(cls, parts: Mapping[str, str]) -> ScopeProviderError:
        """Make the error that ``to_dict`` described; one of ``cls`` if its class is not known here."""
        kind = cls._by_name.get(parts["type"], cls)
        return kind(parts["what"], kept=parts["kept"], do=parts["do"])


# ---- what the user wrote ---------------------------------------------------------------------------


class InputError(ScopeProviderError, ValueError):
    """An argument is wrong: the value, what was expected, and what to write instead."""


class SqlError(InputError):
    """The SELECT does not compile, or cannot be evaluated on the files of a batch."""


class SchemaMismatchError(InputError):
    """The SELECT's columns do not fit the table's: extra, missing, or not convertible without loss."""


class MergeKeyError(InputError):
    """Rows of a batch cannot be merged: a key is NULL, or nothing says which of two rows counts."""


class CursorError(InputError):
    """A cursor's column, its values, its bounds or its state do not fit together."""

    columns: tuple[str, ...] = ()
    """The columns of a database that the table has no type for. Empty in another process."""


class ChangeFeedError(InputError):
    """A change data feed cannot tell the changes that are asked for, or they do not fit together."""


class EmptyRefreshError(InputError):
    """A full refresh found no file, so it would empty the table."""


class ConnectionMissingError(ScopeProviderError, is_retryable=True):  # Airflow says the same in both cases
    """Airflow has no connection of the given id, or its store of secrets does not answer."""


# ---- the files ------------------------------------------------------------------------------------


class SourceError(ScopeProviderError):
    """Base of errors about the source's files and folders."""


class SourceNotFoundError(SourceError, is_retryable=True):
    """A root folder of the source does not exist."""


class SourceEmptyError(SourceError, is_retryable=True):
    """No file of the source matches its patterns, and ``fail_on_empty=True``."""


class SourceUnreadableError(SourceError, is_retryable=True):
    """A folder could not be listed, a file's status could not be read, or a database ended what reads it."""


class SourceFileGoneError(SourceError):
    """A file of a batch that was logged vanished before it was read."""


class SourceFileChangedError(SourceError):
    """A file has changed since its batch was logged, or while it was read; or ``on_changed_file="fail"``."""


class SourceMismatchError(SourceError):
    """Spark would read other files than the batch has."""


class BadFileError(SourceError):
    """A file is not what the source says: its columns, its encoding or its form."""

    files: Mapping[str, tuple[str, str | None]] = MappingProxyType({})
    """URI of each such file of the batch -> what is wrong with it, and what shows it or may help.

    Empty in another process.
    """


class BadRecordError(SourceError):
    """A record of a file does not have the declared columns, or a value that is not of the declared type."""


# ---- the checkpoint -------------------------------------------------------------------------------


class StorageError(ScopeProviderError, is_retryable=True):
    """A read or write of a control file failed, and it is not known to be absent."""


class CheckpointError(ScopeProviderError):
    """Base of errors about the records of the checkpoint."""


class CheckpointCorruptError(CheckpointError):
    """A record is truncated, is not valid, or contradicts its own name."""


class CheckpointGapError(CheckpointError):
    """A number is missing in the log."""


class RecordsVacuumedError(CheckpointError, is_retryable=True):
    """A record was purged by `airflow scope vacuum` after the run began; the next one needs newer ones."""


class CheckpointVersionError(CheckpointError):
    """A record was written by a newer version of this package, or by another program."""


# ---- the table ------------------------------------------------------------------------------------


class TableError(ScopeProviderError):
    """Base of errors about the target table."""


class TableUnreadableError(TableError, is_retryable=True):
    """The table's log could not be read, so what it holds is not known."""


class TableDivergedError(TableError):
    """Base of errors about a table that is not the one that the log describes."""


class TableRestoredError(TableDivergedError):
    """The table was restored since the newest record."""


class TableGoneError(TableDivergedError):
    """There is no table any more where there was one when the newest record was written."""


class TableRecreatedError(TableDivergedError):
    """The table was dropped and created again, or replaced, since the newest record."""


class TableBehindLogError(TableDivergedError):
    """A batch that was committed, or the one before the next, is not in the table."""


class TableAheadOfLogError(TableDivergedError):
    """The table holds a batch that the log does not know."""


class AbandonedBatchError(TableDivergedError):
    """The table holds a batch that was abandoned before there was a table."""


class WatermarkChangedError(TableDivergedError):
    """dbt-scope, or somebody else, has written or deleted ``watermark.json`` since this package did."""


class UnknownRowsError(TableDivergedError):
    """The table holds rows, and no record says how they came."""


class StateUnknownError(TableError):
    """What of the source is in the table is not known, so nothing can be added to it."""


class BatchOutcomeUnknownError(TableError):
    """The table's log no longer tells whether a batch is in the table."""


class BatchNotInTableError(TableError, is_retryable=True):
    """The engine reported success, but the batch is not in the table."""


# ---- the engine -----------------------------------------------------------------------------------


class EngineError(ScopeProviderError, is_retryable=True):
    """Base of errors of whatever runs the batches."""


class SparkJobFailedError(EngineError):
    """The Spark application failed; the message holds its cause."""


class JavaMissingError(EngineError, is_retryable=False):
    """Java is missing or too old for Spark."""


class DeltaJarsError(EngineError):
    """Spark could not resolve Delta's jars."""


class ScopeJobFailedError(EngineError):
    """A SCOPE job failed or was cancelled, and its rows are not in the table."""


class ScopeScriptError(EngineError, is_retryable=False):
    """The service blames the script: the SELECT, the columns or the files."""


class JobRunningError(EngineError):
    """A job is still running; not a failure, but the reason why a run ends before its batches do.

    :param job_id: The job.
    :param deadline: When it has to be cancelled, seconds since the epoch.
    """

    def __init__(
        self, what: str, *, kept: str = "", do: str = "", job_id: str = "", deadline: float | None = None
    ) -> None:
        super().__init__(what, kept=kept, do=do)
        self.job_id = job_id
        self.deadline = deadline
        self.events: str | None = None
        """The URI of the file in which it says that it waits for its next plan; None if it never does."""


class JobNotEndedError(EngineError):
    """A job that was cancelled has not ended, so it may still change the table."""


# ---- the Azure services -----------------------------------------------------------------------------


class ServiceError(ScopeProviderError):
    """Base of errors of services: of jobs, of clusters and of storage."""


class ServiceRefusedError(ServiceError):
    """The service refused a request; the message holds the service's own text."""


class ServiceAuthError(ServiceError, is_retryable=True):
    """There is no token, or the service does not let its owner do what was asked for."""


class ServiceUnavailableError(ServiceError, is_retryable=True):
    """The service did not answer, or for a reason that passes could not, until the tries were used up."""


class ServiceOutcomeUnknownError(ServiceError, is_retryable=True):
    """A request that changes something was sent, and no answer says whether it took effect."""


class ServiceProtocolError(ServiceError):
    """An answer is not what the protocol says, or leads to another host."""


class JobMismatchError(ServiceError):
    """A job with this id exists, and it is another job."""


class SourceRefusedError(SourceError, is_retryable=True):
    """A folder may be there or not: the connection's identity is not allowed to look."""


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install 'airflow-provider-scope[{extra}]'"


@contextmanager
def of_extra(extra: str, feature: str) -> Iterator[None]:
    """Wrap the import of an extra's packages, and explain its failure.

    :param extra: Its name in ``pyproject.toml``.
    :param feature: What needs it, as the beginning of a sentence.
    :raises InputError: One of the packages is not installed.
    """
    try:
        yield
    except ImportError as err:
        raise InputError(
            f"{feature} needs a package that is not installed here: {err}.",
            kept="everything; nothing was read or written",
            do=f"install it on the workers and on the triggerer: {how_to_install(extra)}",
        ) from err


HIDDEN = "***"

_SECRETS = (
    re.compile(r"(?i)(\bbearer\s+)[^\s\"',;]+"),
    re.compile(r"(?i)(\bshared_?key(?:lite)?\s+[\w-]+:)[^\s\"',;]+"),
    re.compile(r"()\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"),  # a JSON web token, wherever it stands
    re.compile(r"(?i)((?<!\w)(?:sig|delegation)=)[^&\s\"']+"),
    re.compile(
        r"(?i)((?<![A-Za-z0-9])(?:token|client_secret|client_assertion|account_?key|"
        r"secret_?(?:access_?)?key|shared_?access_?(?:key|signature)|password)[\"']?\s*[=:]\s*[\"']?)"
        r"[^\s\"'&;,}]+"
    ),
    re.compile(r"()(?<![\w+/])[A-Za-z0-9+/]{86}=="),  # 64 bytes, the length of an account key
)


def mask(text: str, *secrets: str) -> str:
    """Hide tokens, keys and signatures, and the ``secrets`` themselves."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    for pattern in _SECRETS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text
