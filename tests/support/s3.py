"""S3 on loopback: moto's server in a process of its own, which decides one request at a time, as S3 does."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.hooks.s3 import S3Access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KEY_ID = "AKIAIOSFODNN7EXAMPLE"
# The key that AWS's documentation gives; it opens nothing.
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
REGION = "eu-west-1"


def access(address: str) -> S3Access:
    """Make an identity for the server at an address."""
    return S3Access(key_id=KEY_ID, secret=SECRET, region=REGION, endpoint=address, path_style=True)


@functools.cache
def address() -> str:
    """Start the server on a free port, and give its URL; it ends with this process."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": ""},
    )
    atexit.register(server.kill)
    assert server.stdout
    said = server.stdout.readline()
    assert said.startswith("http://"), "moto did not start; `python -m tests.support.s3` says why"
    return said.strip()


def make_bucket(address: str) -> str:
    """Make a bucket that nobody else uses, and give its name."""
    name = uuid.uuid4().hex
    where: Any = {"LocationConstraint": REGION}
    access(address).client().create_bucket(Bucket=name, CreateBucketConfiguration=where)
    return name


def _one_at_a_time(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Decide one request at a time: moto looks whether a name is taken, and takes it, in two steps."""
    lock = threading.Lock()

    def call(environ: Any, start_response: Any) -> list[bytes]:
        with lock:
            return list(app(environ, start_response))

    return call


def _serve() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, _one_at_a_time(app), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()  # it ends with the pipe to its parent, however the parent ends


if __name__ == "__main__":
    _serve()
