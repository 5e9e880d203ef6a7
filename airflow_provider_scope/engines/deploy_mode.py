"""Where Spark's driver would run: on the worker, or on the cluster, which is refused."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.common.compat.sdk import Connection

DEPLOY_MODE = "spark.submit.deployMode"
_IN_DEFAULTS = re.compile(rf"^\s*{re.escape(DEPLOY_MODE)}(?:\s*[=:]\s*|\s+)(\S+)", re.MULTILINE)


def check_client_mode(connection: Connection | None, conf: Mapping[str, Any] | None) -> None:
    """Check that the driver runs on the worker, by the first place that names a deploy mode, as Spark looks.

    :param connection: The Spark connection; None is local mode.
    :raises InputError: It would run on the cluster.
    """
    places: list[tuple[str, Any]] = [(f"conf[{DEPLOY_MODE!r}]", (conf or {}).get(DEPLOY_MODE))]
    if connection is not None:
        named = connection.extra_dejson.get("deploy-mode")
        file = defaults_file()
        places = [
            (f"The Spark connection {connection.conn_id!r}", named),
            *places,
            (str(file), _of_defaults(file)),
            ("The variable DEPLOY_MODE of the worker", os.environ.get("DEPLOY_MODE")),
        ]
    for where, mode in places:
        if mode:
            if str(mode).strip().lower() == "cluster":
                raise _refused(where, has_connection=connection is not None)
            return


def defaults_file() -> Path | None:
    """Give the file of settings that Spark takes on this machine; it need not exist."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder:
        return Path(folder, "spark-defaults.conf")
    home = spark_home()
    return home / "conf" / "spark-defaults.conf" if home else None


def spark_home() -> Path | None:
    """Give the folder of Spark: what the environment names, else that of pyspark."""
    named = os.environ.get("SPARK_HOME")
    if named:
        return Path(named)
    found = find_spec("pyspark")
    return Path(found.origin).parent if found and found.origin else None


def _of_defaults(file: Path | None) -> str | None:
    try:
        found = _IN_DEFAULTS.findall(file.read_text(encoding="utf-8", errors="replace")) if file else []
    except OSError:
        return None  # there is none, as a rule
    return found[-1] if found else None


def _refused(where: str, *, has_connection: bool) -> InputError:
    do = "use client mode, where the driver runs on the worker: "
    if has_connection:
        do += "deploy mode `client` in the connection wins over conf and spark-defaults.conf"
    else:
        do += f"leave {DEPLOY_MODE} out of conf, `client` is the default"
    return InputError(
        f"{where} asks for deploy mode cluster, which is not supported: the driver would run on another "
        "machine, and outlive the task.",
        kept="everything; nothing was read or written",
        do=do,
    )
