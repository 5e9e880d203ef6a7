"""A real API server of Kubernetes and its etcd on loopback; a stand-in for the kubelet runs Spark's pods."""

from __future__ import annotations

import atexit
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.kept import kept
from tests.support.kubeconfig import kubeconfig
from tests.support.processes import guard

VERSION = "1.34.4"
START_SECONDS = 120.0
_SOURCES = Path(__file__).parent


def install() -> Path:
    """Return the folder with both programs below the virtual environment; build them if it is not there.

    :raises RuntimeError: Go is missing, or could not build them.
    """
    return kept(f"kubernetes-{VERSION}", _built)


def _built(folder: Path) -> Path:
    if shutil.which("go") is None:
        msg = "Go is missing: install Go 1.26 or newer, of which Kubernetes' API server is built"
        raise RuntimeError(msg)
    for name in ("etcd", "apiserver"):
        command = ["go", "build", "-ldflags=-s -w", "-o", str(folder / name), f"./{name}"]
        done = subprocess.run(command, cwd=_SOURCES / "plane", capture_output=True, text=True, check=False)
        if done.returncode:
            msg = f"Go could not build {name}: {done.stderr.strip()[-500:]}"
            raise RuntimeError(msg)
    return folder


class Kubernetes:
    """One control plane with one node.

    All processes end with this one, however it ends: they are in the process group of a guard, which kills
    the group when its pipe is closed. The containers end with the kubelet's stand-in.
    """

    def __init__(self) -> None:
        """Start it on free ports.

        :raises RuntimeError: It did not start.
        """
        self.programs = install()
        self.folder = Path(tempfile.mkdtemp(prefix="airflow-provider-scope-kubernetes-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.guard = guard()
        atexit.register(self.stop)
        self.token = secrets.token_urlsafe(16)
        (self.folder / "token").write_text(self.token)
        (self.folder / "tokens.csv").write_text(f"{self.token},laptop,laptop,system:masters\n")
        _write_keys(self.folder)
        etcd, peer, self.port, self.kubelet_port = _free_ports(4)
        self._run(
            self.programs / "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self._etcd = f"http://127.0.0.1:{etcd}"
        self.start_api()
        self._run(sys.executable, _SOURCES / "kubelet.py", self.folder, self.url, str(self.kubelet_port))
        self.kubeconfig = self.folder / "kubeconfig"
        authority = {"certificate-authority": str(self.folder / "apiserver.crt")}
        config = kubeconfig(self.token, server=self.url, **authority)
        self.kubeconfig.write_text(json.dumps(config))

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"https://127.0.0.1:{self.port}"

    def start_api(self) -> None:
        """Start the API server, after a kill if it runs."""
        self.api = self._run(
            self.programs / "apiserver",
            f"--etcd-servers={self._etcd}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder}",
            f"--service-account-key-file={self.folder}/accounts.pem",
            f"--service-account-signing-key-file={self.folder}/accounts.pem",
            "--service-account-issuer=https://127.0.0.1",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.api.poll() is None:
            try:
                answer = requests.get(
                    f"{self.url}/readyz",
                    headers={"Authorization": f"Bearer {self.token}"},
                    verify=str(self.folder / "apiserver.crt"),
                    timeout=5,
                )
                if answer.ok:
                    return
            except (requests.RequestException, OSError):
                pass
            time.sleep(0.1)
        msg = f"the API server did not start: {(self.folder / 'apiserver.log').read_text()[-2000:]}"
        raise RuntimeError(msg)

    def kill_api(self) -> None:
        """Kill the API server; what runs goes on."""
        self.api.kill()
        self.api.wait()

    def stop(self) -> None:
        """End all."""
        self.guard.stdin.close()
        self.guard.wait()

    def _run(self, program: str | Path, *arguments: str | Path) -> subprocess.Popen[bytes]:
        name = Path(arguments[0]).stem if program == sys.executable else Path(program).name
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(program), *map(str, arguments)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=self.guard.pid,
            )


def _write_keys(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "accounts.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
