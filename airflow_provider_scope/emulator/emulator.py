"""The emulator as one object: start, address, stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from airflow_provider_scope.emulator.account import Account
from airflow_provider_scope.emulator.files import FilesService
from airflow_provider_scope.emulator.jobs import JobStore
from airflow_provider_scope.emulator.jobs_service import JobsService
from airflow_provider_scope.emulator.routing import Router
from airflow_provider_scope.emulator.scripts import ScriptRunner
from airflow_provider_scope.emulator.switches import Controls, Switches, changed
from airflow_provider_scope.emulator.web import HOST, Server

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType


class Emulator:
    """Both services of one account, on loopback; a context manager.

    :param root: The account directory; it is created, and keeps the jobs over restarts.
    :param port: 0 takes a free one.
    :param clock: Seconds since the epoch.
    :param tls: Speak https, by a certificate made for loopback; ``certificate`` names its file.
    :param switches: Fields of :class:`Switches`.
    :raises InputError: A switch is not known.
    """

    certificate: Path | None = None
    """What clients trust, if the emulator speaks https."""

    def __init__(
        self,
        root: str | Path,
        *,
        port: int = 0,
        clock: Callable[[], float] = time.time,
        tls: bool = False,
        **switches: Any,
    ) -> None:
        self.controls = Controls(changed(Switches(), switches))
        self.account = Account(Path(root))
        self._clock = clock
        self._port = port
        self._tls = self._context() if tls else None
        self._server: Server | None = None
        self._jobs: JobStore | None = None
        self._claim: IO[bytes] | None = None

    def start(self) -> Self:
        """Open the port, and let jobs that were left go on."""
        claim = self.account.claim()
        try:
            server = Server(self._port, self._tls)
        except OSError:
            claim.close()
            raise
        self._claim = claim
        runner = ScriptRunner(self.account)
        self._jobs = JobStore(self.account.private / "jobs", runner, self.controls, self._clock)
        server.answer = Router(
            JobsService(self._jobs, self.controls), FilesService(self.account, self.controls), self.controls
        )
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), name="emulator", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the port; scripts that run are waited for, other jobs go on at the next start."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if self._server is None:
            msg = "the emulator is not running"
            raise RuntimeError(msg)
        return self._server.server_port

    @property
    def url(self) -> str:
        """Address of the default account, without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://{HOST}:{self.port}"

    def set(self, **switches: Any) -> None:
        """Change switches while it runs.

        :raises InputError: A switch is not known.
        """
        self.controls.set(switches)

    def counts(self) -> dict[str, int]:
        """Give what was counted: requests, answers, faults, jobs."""
        return self.controls.counts()

    def _context(self) -> ssl.SSLContext:
        # Only here: most runs need no certificate, and the library takes a while to load.
        from airflow_provider_scope.emulator.tls import server_context  # noqa: PLC0415

        context, self.certificate = server_context(self.account.private / "tls")
        return context
