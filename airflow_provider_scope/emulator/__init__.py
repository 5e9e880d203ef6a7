"""A local emulator of the two retired services: ADLA's jobs and ADLS Gen1's files.

``Emulator(root)`` serves both on loopback over one directory. It contacts no Azure service.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

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
        self._jobs: JobStore | None = None
        self._claim: IO[bytes] | None = None

    def start(self) -> Self:
        """Open the port, and continue the jobs that had not ended."""
        claim = self.account.claim()
        try:
            server = Server(self._port)
        except OSError:
            claim.close()
            raise
        self._claim = claim
        jobs = JobStore(self.account.private / "jobs", ScriptRunner(self.account), self.controls, self._clock)
        server.answer = Router(
            {
                "jobs": JobsService(jobs, self.controls),
                "webhdfs": FilesService(self.account, self.controls),
            },
            self.controls,
        )
        self._server, self._jobs = server, jobs
        threading.Thread(target=server.serve_forever, args=(0.01,), name="emulator", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the port. Running scripts are waited for; other jobs continue at the next start."""
        server, jobs = self._server, self._jobs
        self._server = self._jobs = None
        if server is not None:
            server.stop()
        if jobs is not None:
            jobs.close()
        if self._claim is not None:
            self._claim.close()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def port(self) -> int:
        """The port on which the emulator listens."""
        if self._server is None:
            msg = "the emulator is not running"
            raise RuntimeError(msg)
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
