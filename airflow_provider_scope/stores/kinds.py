"""The kinds of stores: one row each, with everything in which they differ."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_STORES = "airflow_provider_scope.stores"
_HOOKS = "airflow_provider_scope.hooks"
# Spark's own default shows the key of a storage account.
_REDACTED = "(?i)secret|password|passphrase|token|credential|key|sas|signature"
_NOT_ON_GCS = "gcsfs calls its create-if-absent experimental"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """One kind of store. Functions are named as ``module:function``: a Dag file does not import them."""

    name: str
    schemes: tuple[str, ...] = ()
    """How its canonical URIs begin, without ``://``."""
    aliases: tuple[str, ...] = ()
    """Other schemes of its locations: ``canonical`` accepts them, or refuses them and says what to write."""
    canonical: str
    """``(location) -> uri``: gives the canonical, unencoded URI, or raises ``InputError``."""
    open: str
    """``(uri, conn_id, connection) -> Store``; the connection is passed if it was read before."""
    no_control_files: str = ""
    """Why it can hold sources, but no table and no checkpoint; empty if it can hold all of them."""
    needs_connection: bool = True
    is_per_host: bool = True
    """Whether one ``Storage`` serves one host alone: an account or a cluster."""
    is_for_spark: bool = True
    """Whether Spark can reach it at all."""
    is_for_jobs: bool = True
    """Whether SCOPE jobs can."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's settings for every store of this kind; opening adds those that depend on the connection."""
    spark_packages: tuple[str, ...] = ()
    """Modules of Hadoop that Spark lacks for it."""
    reads_decomposed: bool = True
    """Whether a name with decomposed letters (NFD) opens the file of exactly that name."""


LOCAL = StoreKind(
    name="a disk",
    schemes=("file",),
    aliases=("",),
    canonical=f"{_STORES}.local:canonical",
    open=f"{_STORES}.local:open_store",
    needs_connection=False,
    is_per_host=False,
)
OTHER = StoreKind(
    name="a store of fsspec",
    canonical=f"{_STORES}.objects:canonical",
    open=f"{_HOOKS}.stores:open_by_fsspec",
    no_control_files="nothing shows that it refuses to create a file twice",
    is_per_host=False,
    is_for_jobs=False,
)
"""The kind of a location whose scheme no row of ``KINDS`` names."""
KINDS = [
    LOCAL,
    StoreKind(
        name="Azure Storage",
        schemes=("abfss",),
        aliases=("abfs", "wasb", "wasbs", "az", "http", "https"),
        canonical=f"{_STORES}.azure:canonical",
        open=f"{_HOOKS}.azure_storage:open_store",
        spark_conf={"spark.redaction.regex": _REDACTED},
        spark_packages=("hadoop-azure",),
    ),
    StoreKind(
        name="ADLS Gen1",
        schemes=("adl",),
        canonical=f"{_STORES}.hdfs:canonical_gen1",
        open=f"{_HOOKS}.adls_gen1:open_store",
        is_for_spark=False,
    ),
    StoreKind(
        name="HDFS",
        schemes=("webhdfs", "swebhdfs"),
        aliases=("hdfs",),
        canonical=f"{_STORES}.hdfs:canonical_hdfs",
        open=f"{_HOOKS}.stores:open_hdfs",
        is_for_jobs=False,
        # Its client for WebHDFS needs a class of JAX-RS (``RuntimeDelegateImpl``) that pyspark's jars lack.
        spark_packages=("hadoop-client-minicluster",),
        reads_decomposed=False,
    ),
    StoreKind(
        name="S3",
        schemes=("s3",),
        aliases=("s3a", "s3n"),
        canonical=f"{_STORES}.s3:canonical",
        open=f"{_HOOKS}.s3:open_store",
        is_per_host=False,
        is_for_jobs=False,
        spark_conf={
            # Hadoop knows the client as s3a:// alone.
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
            "spark.hadoop.fs.s3a.create.conditional.enabled": "true",
            "spark.redaction.regex": _REDACTED,
        },
        spark_packages=("hadoop-aws",),
    ),
    replace(OTHER, name="Google Cloud Storage", schemes=("gs", "gcs"), no_control_files=_NOT_ON_GCS),
    replace(OTHER, name="memory", schemes=("memory",), no_control_files="it ends with its process"),
]


def scheme_of(location: str) -> str:
    """Return a location's scheme in lower case; empty for a plain path."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", location)
    if match:
        return match[1].lower()
    return "file" if location.startswith("file:") else ""


def kind_of(location: str) -> StoreKind:
    scheme = scheme_of(location)
    return next((kind for kind in KINDS if scheme in kind.schemes or scheme in kind.aliases), OTHER)


def place_of(uri: str) -> str:
    """Name what one ``Storage`` serves: a disk, an account, a cluster, or a whole kind of store."""
    scheme, _, place = uri.partition("://")
    if not kind_of(uri).is_per_host:
        return scheme
    return f"{scheme}://{place.partition('/')[0].rpartition('@')[2]}"
