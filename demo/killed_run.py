"""A run of the example that dies by kill -9: its batch is in the table, the record of that is not.

``python -m demo.killed_run <folder of the demo> <engine> [<emulator>]``, in a process group of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from airflow_provider_scope.storage import opening
from airflow_provider_scope.storage.local import LocalStorage
from demo import airflow_home
from demo.engines import ENGINES
from demo.screen import indented, take_screen


class DyingStorage(LocalStorage):
    """The local disk of a worker that loses its power when it would record a commit."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file; a commit record kills the process group instead."""
        if "/commits/" in path:
            os.killpg(0, signal.SIGKILL)
        return super().put_if_absent(path, data)


def main() -> None:
    """Run until killed."""
    folder, engine, *address = sys.argv[1:]
    home = airflow_home.Home(Path(folder), ENGINES[engine]())
    screen = take_screen(home.logs / "airflow.log")
    airflow_home.enter(home)
    home.engine.join(*address)
    opening.LocalStorage = DyingStorage  # type: ignore[misc]
    airflow_home.run_example(home, lambda text: print(indented(text), file=screen))


if __name__ == "__main__":
    main()
