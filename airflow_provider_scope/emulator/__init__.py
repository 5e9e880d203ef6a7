"""A local emulator of the two retired services: ADLA's jobs and ADLS Gen1's files.

``Emulator(root)`` serves both on loopback over one directory. It contacts no Azure service.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from airflow_provider_scope.emulator.files import Account, FilesService
from airflow_provider_scope.emulator.jobs import JobsService, JobStore
from airflow_provider_scope.emulator.scripts import ScriptRunner
from airflow_provider_scope.emulator.switches import Controls, Fault, Switches
from airflow_provider_scope.emulator.web import HOST, Router, Server

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Emulator", "Fault", "Switches"]


class Emulator:
    """Both services of one account, on loopback; a context manager.

    :param root: The account directory; it is created, and keeps the jobs over restarts.
    :param port: 0 takes a free one.
    :param clock: Seconds since the epoch.
    :param switches: Fields of :class:`Switches`.
    :raises InputError: A switch is not known.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        port: int = 0,
        clock: Callable[[], float] = time.time,
        **switches: Any,
    ) -> None:
        self.controls = Controls(**switches)
        self.account = Account(Path(root))
        self._clock = clock
        self._port = port
        self._server: Server | None = None
        self._opened = ExitStack()

    def start(self) -> Self:
        """Open the port, and continue the jobs that had not ended."""
        runner = ScriptRunner(self.account)
        with ExitStack() as opened:
            opened.enter_context(self.account.claim())
            server = Server(self._port)
            self._jobs = JobStore(self.account.private / "jobs", runner, self.controls, self._clock)
            opened.callback(self._jobs.close)
            jobs, files = JobsService(self._jobs, self.controls), FilesService(self.account, self.controls)
            server.answer = Router({"jobs": jobs, "webhdfs": files}, self.controls)
            threading.Thread(target=server.serve_forever, args=(0.01,), name="emulator", daemon=True).start()
            opened.callback(server.stop)
            self._server, self._opened = server, opened.pop_all()
        return self

    def stop(self) -> None:
        """Close the port. Running scripts are waited for; other jobs continue at the next start."""
        self._server = None
        self._opened.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port on which the emulator listens."""
        if self._server is None:
            raise RuntimeError("the emulator is not running")
        return self._server.server_port

    @property
    def url(self) -> str:
        """Address of the default account, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    def set(self, **switches: Any) -> None:
        """Change switches while the emulator runs.

        :raises InputError: A switch is not known.
        """
        self.controls.set(**switches)

    def counts(self) -> dict[str, int]:
        """Return the counters: requests, answers, faults, jobs."""
        return self.controls.counts()
