"""``python -m airflow_provider_scope.emulator --root DIR --port N``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from typing import Any

from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.exceptions import ScopeProviderError


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_scope.emulator",
        description="Emulate ADLA jobs and ADLS Gen1 files on this machine. No Azure service is contacted.",
    )
    parser.add_argument("--root", required=True, help="the account directory")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument(
        "--switch",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a switch; the value is JSON, or else text. May be repeated",
    )
    options = parser.parse_args(arguments)
    try:
        switches = dict(map(_switch, options.switch))
        emulator = Emulator(options.root, port=options.port, **switches).start()
    except (ScopeProviderError, OSError, ValueError) as err:
        sys.stderr.write(f"{err}\n")
        return 2
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    sys.stdout.write(f"{emulator.url}\n")
    sys.stdout.flush()
    ended.wait()
    emulator.stop()
    return 0


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
