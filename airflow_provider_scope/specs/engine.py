"""What runs the batches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Literal

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.settings import contradiction
from airflow_provider_scope.validation import Count

VOID_NAME = "airflow_provider_scope_void"
"""How the names of no-op jobs begin: a job so named adds no rows."""


_DRIVER_MEMORY = "spark.driver.memory"
_SIZE = re.compile(r"\d+[kmgt]?", re.IGNORECASE)
"""What Java accepts after -Xmx. Spark passes it on unchanged; Java's error names no setting and no remedy."""


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class SparkEngine:
    """Spark, through ``spark-submit``.

    :param spark_conn_id: A connection of type ``spark`` or ``livy``. None is Spark inside the task's own
        process group (``local[*]``), and needs nothing but Java.
    :param conf: Spark configuration; it overrides the provider's, except for settings on which exactness
        depends.
    :param packages: Maven coordinates. None is Delta's, for the installed versions of pyspark and
        delta-spark, and those of the store; ``()`` is none, for a cluster that has Delta.
    :param jars: Jar files, instead of ``packages``: for machines that reach no Maven repository.
    :param shared_folders: Folders that every machine of the cluster mounts at the same path, if its manager
        runs the driver: places on other disks are refused.
    :param server: ``"auto"``: a Spark that stays on the worker runs the batches, and is started if there is
        none with these settings. ``"never"``: each run starts Spark, and ends it.
    :raises InputError: A value is not valid.
    """

    spark_conn_id: str | None = None
    conf: Mapping[str, str] | None = None
    packages: Sequence[str] | None = None
    jars: Sequence[str] | None = None
    server: Literal["auto", "never"] = "never"
    shared_folders: Sequence[str] = ()

    @property
    def conn_id(self) -> str | None:
        """The connection of what runs the jobs; None if the task's own process group does."""
        return self.spark_conn_id

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        if isinstance(self.conf, Mapping):
            _check_conf(self.conf)
        if self.packages and self.jars:
            raise validation.bad("jars", self.jars, "None when packages are named", "name one of the two")


def _check_conf(conf: Mapping[str, Any]) -> None:
    for name, value in conf.items():
        setting = None if validation.is_deferred(value) else contradiction(name, value)
        if setting:
            raise InputError(
                f"conf[{name!r}]={value!r} is refused, it has to be {setting.value}: {setting.reason}.",
                kept="everything; nothing was read or written",
                do="leave it out",
            )
        if name == _DRIVER_MEMORY and not validation.is_deferred(value) and not _SIZE.fullmatch(str(value)):
            raise validation.bad(
                f"conf[{name!r}]",
                value,
                "a whole number and one of k, m, g and t, without a blank",
                "write '4g' for 4 GiB, for example",
            )


def check_tag(argument: str, value: Any) -> Any:
    """Check how jobs' names are to begin.

    :raises InputError: It is not text, or a job so named would be taken for a no-op.
    """
    validation.text(argument, value)
    if not validation.is_deferred(value) and value.startswith(VOID_NAME):
        raise validation.bad(
            argument,
            value,
            f"text that does not begin with {VOID_NAME}",
            "choose another name: jobs with this name add no rows, and count as such",
        )
    return value


COMMIT_CONDITIONS = ("FailIfConflict", "FailIfPartitionConflict", "FailIfFileConflict")
"""What ``DeltaLakeCommitCondition`` can be in the settings of a script."""
JobTag = Annotated[str, check_tag]
JobSeconds = Annotated[float, partial(validation.number, at_least=1, whole=False)]


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeEngine:
    """SCOPE jobs on Azure Data Lake Analytics, one for each batch.

    What is None falls back to the connection, then to the default in brackets.

    :param scope_conn_id: A connection of type ``adla_scope``.
    :param au: Analytics units of a job (100).
    :param priority: Priority of a job, 1 or more; a lower number leaves the queue first (1).
    :param job_tag: How the jobs' names begin; None is the task's id.
    :param job_timeout_seconds: How long a job may take, from its submission (36,000).
    :param feature_previews: Previews that the script turns on (``EnableDeltaTableDynamicInsert:on``).
    :param settings: Further ``SET @@name = value`` of the script; they take the place of its
        ``DeltaLakeCommitCondition`` (``FailIfFileConflict``) and ``MaxFileCountPerOutputFileSet`` (5,000).
    :raises InputError: A value is not valid.
    """

    scope_conn_id: str = "adla_scope_default"
    au: Count | None = None
    priority: Count | None = None
    job_tag: JobTag | None = None
    job_timeout_seconds: JobSeconds | None = None
    feature_previews: Sequence[str] | None = None
    settings: Mapping[str, str | int | float | bool] | None = None

    @property
    def conn_id(self) -> str:
        """The connection of what runs the jobs."""
        return self.scope_conn_id


_OF_SCOPE = {field.name for field in fields(ScopeEngine)}


def may_outlive_task(value: Any) -> bool:
    """Whether an engine has jobs elsewhere, or is only known when the task runs."""
    if value is None or isinstance(value, SparkEngine):
        return bool(value and value.conn_id)
    return bool((_OF_SCOPE | {"spark_conn_id"}) & set(value)) if isinstance(value, Mapping) else True


def engine_from(value: Any) -> SparkEngine | ScopeEngine:
    """Make the engine out of what the user wrote: a spec, or a dict of one's fields.

    :raises InputError: It is none of these, or a value in it is not valid.
    """
    if isinstance(value, (SparkEngine, ScopeEngine)):
        return value
    if isinstance(value, Mapping) and _OF_SCOPE & set(value):
        return validation.from_dict(ScopeEngine, "engine", value)
    return validation.from_dict(SparkEngine, "engine", value or {})
