"""What runs the batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_scope.specs import validation


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkEngine:
    """Spark, through ``spark-submit``.

    :param spark_conn_id: A Spark connection. None is Spark inside the task's own process group
        (``local[*]``), and needs nothing but Java.
    :param conf: Spark configuration; it wins over ours.
    :param packages: Maven coordinates. None is Delta's, for the installed versions of pyspark and
        delta-spark; ``()`` is none, for a cluster that has Delta.
    :param jars: Jar files, instead of ``packages``: for machines that reach no Maven repository.
    :raises InputError: A value is not valid.
    """

    spark_conn_id: str | None = None
    conf: Mapping[str, str] | None = None
    packages: Sequence[str] | None = None
    jars: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Validate; values that are templates are let through."""
        if self.spark_conn_id is not None:
            validation.text("spark_conn_id", self.spark_conn_id)
        validation.mapping("conf", self.conf)
        for name in ("packages", "jars"):
            if getattr(self, name) is not None:
                validation.set_field(self, name, validation.texts(name, getattr(self, name)))
        if self.packages and self.jars:
            raise validation.bad("jars", self.jars, "None when packages are named", "name one of the two")
