"""The emulator as one object: start, address, stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from airflow_provider_scope.emulator.account import Account
from airflow_provider_scope.emulator.file_store import FileStore
from airflow_provider_scope.emulator.files_service import FilesService
from airflow_provider_scope.emulator.instant import InstantExecutor
from airflow_provider_scope.emulator.job_store import JobStore
from airflow_provider_scope.emulator.jobs_service import JobsService
from airflow_provider_scope.emulator.routing import Router
from airflow_provider_scope.emulator.switches import Controls, Switches, changed
from airflow_provider_scope.emulator.web import Server, loopback

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType

    from airflow_provider_scope.emulator.execution import Executor


class Emulator:
    """Both services of one account, on loopback; a context manager.

    :param root: The account directory; it is created, and keeps the jobs over restarts.
    :param port: 0 takes a free one.
    :param host: Loopback alone.
    :param executor: What runs the scripts; given the account. The default is the instant one.
    :param clock: Seconds since the epoch.
    :param tls: Speak https: True makes a certificate for loopback (``certificate`` names its file), a
        pair names one's own PEM files of certificate and key.
    :param switches: Fields of :class:`Switches`.
    :raises InputError: The host is not loopback, a switch is not known, or the certificate is not usable.
    """

    certificate: Path | None = None
    """What clients trust, if the emulator speaks https."""

    def __init__(
        self,
        root: str | Path,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        executor: Callable[[Account], Executor] = InstantExecutor,
        clock: Callable[[], float] = time.time,
        tls: bool | tuple[str | Path, str | Path] = False,
        **switches: Any,
    ) -> None:
        address = loopback(host)
        self.controls = Controls(changed(Switches(), switches))
        self.account = Account(Path(root))
        self._clock = clock
        self._executor = executor
        self._address = (address, port)
        self._tls = self._context(tls) if tls else None
        self._server: Server | None = None
        self._jobs: JobStore | None = None
        self._running: Executor | None = None
        self._claim: IO[bytes] | None = None

    def start(self) -> Self:
        """Open the port, and let jobs that were left go on."""
        claim = self.account.claim()
        try:
            server = Server(
                *self._address, lambda: self.controls.now.max_body_bytes, self._service_time, self._tls
            )
        except OSError:
            claim.close()
            raise
        self._claim = claim
        self._running = self._executor(self.account)
        self._jobs = JobStore(self.account.private / "jobs", self._running, self.controls, self._clock)
        files = FileStore(self.account, self.controls, self._clock)
        server.answer = Router(
            JobsService(self._jobs, self.controls),
            FilesService(files, self.controls),
            self.controls,
            self._clock,
        )
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), name="emulator", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the port; scripts that run are waited for, other jobs go on at the next start."""
        server, jobs, executor = self._server, self._jobs, self._running
        self._server = self._jobs = self._running = None
        if server is not None:
            server.stop()
        if jobs is not None:
            jobs.close()
        if executor is not None:
            executor.close()
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
        host = self._address[0]
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def set(self, **switches: Any) -> None:
        """Change switches while it runs.

        :raises InputError: A switch is not known.
        """
        self.controls.set(switches)

    def counts(self) -> dict[str, int]:
        """Give what was counted: requests, answers, faults, jobs."""
        return self.controls.counts()

    def _context(self, tls: bool | tuple[str | Path, str | Path]) -> ssl.SSLContext:
        # Only here: most runs need no certificates, and the library takes a while to load.
        from airflow_provider_scope.emulator.tls import own_certificate, server_context  # noqa: PLC0415

        if isinstance(tls, bool):
            self.certificate, key = own_certificate(self.account.private / "tls")
        else:
            self.certificate, key = Path(tls[0]), Path(tls[1])
        return server_context(self.certificate, key)

    def _service_time(self) -> float:
        return self._clock() + self.controls.now.clock_skew_seconds
