"""``python -m airflow_provider_scope.emulator --root DIR --port N``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.emulator.emulator import Emulator
from airflow_provider_scope.emulator.instant import InstantExecutor
from airflow_provider_scope.exceptions import ScopeProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.emulator.account import Account
    from airflow_provider_scope.emulator.execution import Executor


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_scope.emulator",
        description="Emulate ADLA jobs and ADLS Gen1 files on this machine. No Azure service is contacted.",
    )
    parser.add_argument("--root", required=True, help="the account directory")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="loopback alone")
    parser.add_argument(
        "--switch",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a switch; the value is JSON, or else text. May be repeated",
    )
    parser.add_argument(
        "--executor",
        choices=("instant", "spark"),
        default="instant",
        help="instant: SELECTs that only pick columns, no JVM; spark: one local Spark session for all jobs",
    )
    parser.add_argument(
        "--tls",
        action="store_true",
        help="speak https by a certificate made for loopback; its file is printed after the address",
    )
    parser.add_argument("--tls-cert", help="speak https by this certificate (PEM), with --tls-key")
    parser.add_argument("--tls-key", help="the key of --tls-cert (PEM, without a password)")
    options = parser.parse_args(arguments)
    try:
        switches = dict(map(_switch, options.switch))
        executor = _executor(options.executor)
        emulator = Emulator(
            options.root,
            port=options.port,
            host=options.host,
            executor=executor,
            tls=_tls(options),
            **switches,
        ).start()
    except (ScopeProviderError, OSError, ValueError) as err:
        sys.stderr.write(f"{err}\n")
        return 2
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    sys.stdout.write(f"{emulator.url}\n")
    if options.tls:
        sys.stdout.write(f"{emulator.certificate}\n")
    sys.stdout.flush()
    over.wait()
    emulator.stop()
    return 0


def _executor(name: str) -> Callable[[Account], Executor]:
    if name == "instant":
        return InstantExecutor
    # Only here: it needs pyspark and Java.
    from airflow_provider_scope.emulator.spark_executor import SparkExecutor  # noqa: PLC0415

    return SparkExecutor


def _tls(options: argparse.Namespace) -> bool | tuple[str, str]:
    given = (options.tls_cert, options.tls_key)
    if any(given) and (not all(given) or options.tls):
        raise ValueError("--tls-cert and --tls-key go together, and without --tls")
    return given if all(given) else options.tls


def _switch(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--switch {text}: expected NAME=VALUE")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value


if __name__ == "__main__":
    sys.exit(main())
