"""A run of the example that dies by kill -9: its batch is in the table, the record of that is not.

``python -m demo.killed_run <folder of the demo> <engine> [<emulator>]``, in a process group of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from airflow_provider_scope.stores.local import LocalStorage
from demo import airflow_home
from demo.engines import ENGINES
from demo.screen import indented, take_screen


def die_at_a_record() -> None:
    """Let the worker lose its power when it would record a commit."""
    create = LocalStorage.put_if_absent

    def put_if_absent(self: LocalStorage, path: str, data: bytes) -> bytes:
        if "/commits/" in path:
            os.killpg(0, signal.SIGKILL)
        return create(self, path, data)

    LocalStorage.put_if_absent = put_if_absent  # type: ignore[method-assign]


def main() -> None:
    """Run until killed."""
    folder, engine, *address = sys.argv[1:]
    home = airflow_home.Home(Path(folder), ENGINES[engine]())
    screen = take_screen(home.logs / "airflow.log")
    airflow_home.enter(home)
    home.engine.join(*address)
    die_at_a_record()
    airflow_home.run_example(home, lambda text: print(indented(text), file=screen))


if __name__ == "__main__":
    main()
