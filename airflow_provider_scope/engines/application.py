"""The Spark application as ``spark-submit`` takes it: a script, a zip, coordinates of jars."""

from __future__ import annotations

import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import airflow_provider_scope
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import FileSource

if TYPE_CHECKING:
    from airflow_provider_scope.sources.spec import SourceSpec

KEPT = "the batches that are in the table; the others stay logged"
"""What is kept when an application fails, or does not start."""
_PACKAGE = Path(airflow_provider_scope.__file__).parent
_SHIPPED = (
    "__init__.py",
    "columns.py",
    "exceptions.py",
    "expectations.py",
    "failures.py",
    "sql.py",
    "validation.py",
    "values.py",
    "delta/__init__.py",
    "delta/commit.py",
    "delta/schema.py",
    "delta/write_rules.py",
    "protocol/__init__.py",
    "protocol/bad_records.py",
    "protocol/records.py",
    "protocol/recovery.py",
    "sources/__init__.py",
    "sources/spec.py",
    "sources/*/__init__.py",
    "sources/*/spec.py",
    "sources/*/state.py",
    "sources/cursor/bounds.py",
    "sources/cursor/databases.py",
    "sources/cursor/values.py",
    "stores/__init__.py",
    "stores/kinds.py",
    "spark",
)
"""What the application imports of this package: files by their patterns, and a folder with all in it."""

SCRIPT = str(_PACKAGE / "spark" / "main.py")
SERVER = str(_PACKAGE / "spark" / "server.py")

EXCLUDED_PACKAGES = (
    "io.delta:delta-kernel-api",
    "io.delta:delta-kernel-defaults",
    "io.delta:delta-kernel-unitycatalog",
    "io.unitycatalog:unitycatalog-client",
    "io.unitycatalog:unitycatalog-hadoop",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.parquet:parquet-hadoop",
    "org.roaringbitmap:RoaringBitmap",
    "org.locationtech.jts:jts-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.slf4j:slf4j-api",
    "commons-codec:commons-codec",
    "commons-logging:commons-logging",
    "org.apache.hadoop.thirdparty:hadoop-shaded-guava",
    "org.apache.httpcomponents:httpclient",
    "org.apache.httpcomponents:httpcore",
    # Of the client for wasb://, which hadoop-azure 3.5 does not have any more.
    "com.microsoft.azure:azure-keyvault-core",
    "com.microsoft.azure:azure-storage",
)
"""Dependencies of the jars of Delta and of Azure Storage that pyspark ships already, or that are not needed.
Without them two jars are downloaded for Delta instead of 33, and two for Azure Storage instead of nine."""

REQUIRED_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # One Spark task for each path of a batch otherwise: 3.2 s instead of 0.2 s for 1,000 files.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    "spark.log.level": "WARN",
    # Zone, language and encoding of file names on other machines; `spark.zone` sets those of the driver.
    "spark.executorEnv.TZ": "UTC",
    "spark.executorEnv.LC_ALL": "C.UTF-8",
    # Java compiles no method of more than 8,000 bytes, and the checks of some columns make a longer one: to
    # read CSV takes a third of the time if Spark then makes several of it.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Python would tell Java of each column in which line of this package it was made, which says nothing to a
    # user: half of all calls into Java are for that.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_WITH_AVRO = (4, 2)
"""The first version of Spark that has its reader of Avro files itself."""
LOCAL_CONF = {
    # Every run is a young JVM, whose optimizing compiler takes more than it gives back: 365 small files
    # cost 48 s of CPU instead of 84 s, and 12 million rows still the same 57 s.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.submit.deployMode": "client",  # a spark-defaults.conf may be there for a cluster
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def delta_package() -> str:
    """Return the coordinate of Delta's jar for the installed pyspark and delta-spark.

    :raises InputError: One of them is not installed.
    """
    major, minor = _installed("pyspark").split(".")[:2]
    return f"io.delta:delta-spark_{major}.{minor}_2.13:{_installed('delta-spark')}"


def packages_for(source: SourceSpec) -> tuple[str, ...]:
    """Return the coordinates of what Spark lacks for the format of a source: Avro's reader, before Spark 4.2.

    :raises InputError: Pyspark is not installed.
    """
    if not isinstance(source, FileSource) or source.format != "avro":
        return ()
    spark = _installed("pyspark")
    has_reader = tuple(map(int, spark.split(".")[:2])) >= _WITH_AVRO
    return () if has_reader else (f"org.apache.spark:spark-avro_2.13:{spark}",)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError as err:
        raise InputError(
            f"The package {name} is not installed on the worker, and Spark needs it.",
            kept=KEPT,
            do="install it there: `pip check` names the version that this package needs. The next run "
            "loads the open batches",
        ) from err


def write_zip(path: Path) -> None:
    """Pack what the application imports; it runs where neither this package nor Airflow is installed.

    The same code gives the same bytes, whenever and wherever it was installed.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for place in (place for pattern in _SHIPPED for place in sorted(_PACKAGE.glob(pattern))):
            for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
                name = zipfile.ZipInfo(str(Path(_PACKAGE.name) / file.relative_to(_PACKAGE)))
                archive.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)
