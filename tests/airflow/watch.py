"""What processes show of secrets."""

from __future__ import annotations

import re
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

SECRETS = {
    "key": "cGxhbnRlZC1hY2NvdW50LWtleS1wbGFudGVkLWFjY291bnQta2V5",
    "sas": "sv=2024-11-04&sig=cGxhbnRlZC1zaWduYXR1cmU%3D",
    "client": "planted~secret.of-a-client",
    "token": "planted-bearer-token-eyJhbGciOi",
}
FRAGMENTS = (SECRETS["key"], "cGxhbnRlZC1zaWduYXR1cmU", SECRETS["client"], SECRETS["token"])


def found_in(text: str) -> list[str]:
    return [fragment for fragment in FRAGMENTS if fragment in text]


class Watch:
    """Looks at all processes below this one, and at the file of properties that they are given."""

    def __init__(self) -> None:
        self.command_lines: set[str] = set()
        self.environments: set[str] = set()
        self.files: dict[Path, tuple[int, list[str]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for child in psutil.Process().children(recursive=True):
                with suppress(OSError, psutil.Error):
                    self._look(Path("/proc", str(child.pid)))

    def _look(self, process: Path) -> None:
        line = (process / "cmdline").read_text()
        self.command_lines.add(line)
        if line not in self.environments:
            self.environments.add((process / "environ").read_text())
        match = re.search(r"--properties-file\0([^\0]+)", line)
        if match and Path(match[1]) not in self.files:
            file = Path(match[1])
            self.files[file] = (stat.S_IMODE(file.stat().st_mode), found_in(file.read_text()))
