"""Work done in other processes, as real writers do it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).parents[2]
NOBODY = 65_534


def start_module(name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a module of the tests in a fresh interpreter, with pipes for its input and output."""
    return subprocess.Popen(
        [sys.executable, "-m", name, *arguments],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def guard() -> subprocess.Popen[bytes]:
    """Start the first process of a group, which kills the group when its pipe is closed."""
    return subprocess.Popen(["sh", "-c", "read line; kill -KILL 0"], stdin=subprocess.PIPE, process_group=0)


def as_nobody(function: Callable[[], Any]) -> Any:
    """Call a function in a child that has no rights of its own, and give its result or its error.

    Root may read everything, so a test that runs as root has to become somebody else.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            answer: Any = function()
        except BaseException as err:  # noqa: BLE001 - whatever it is, the parent wants it
            answer = err
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pickle.load(pipe)
    os.waitpid(child, 0)
    return answer


def eventually(is_so: Callable[[], bool], seconds: float = 90) -> bool:
    """Return whether something comes true in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
