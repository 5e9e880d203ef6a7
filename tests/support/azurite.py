"""Azurite, Microsoft's emulator of Azure's blob service: fetched once from npm, started on loopback."""

from __future__ import annotations

import atexit
import functools
import os
import re
import subprocess
import tempfile
from typing import Any

from tests.support.npm import install

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
# The account and key that Azurite's documentation gives; they open nothing else.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
HOST = f"{ACCOUNT}.dfs.core.windows.net"

# It ends with the pipe to its parent, however the parent ends.
_START = "process.stdin.resume(); process.stdin.on('end', () => process.exit(0)); require(process.argv[1])"


@functools.cache
def address() -> str:
    """Start Azurite's blob service on a free port, and give its URL; it ends with this process."""
    program = install("azurite", VERSION) / "dist" / "src" / "blob" / "main.js"
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry"]
    server = subprocess.Popen(
        # The SDK's newest API version is newer than Azurite.
        ["node", "-e", _START, str(program), *options, "--skipApiVersionCheck", "--silent"],
        cwd=tempfile.gettempdir(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "NODE_OPTIONS": ""},
    )
    atexit.register(server.kill)
    assert server.stdout
    said = ""
    for line in server.stdout:
        said += line
        found = re.search(r"successfully listens on (http://127\.0\.0\.1:\d+)", line)
        if found:
            return f"{found[1]}/{ACCOUNT}"
    msg = f"Azurite did not start: {said[-500:]}"
    raise RuntimeError(msg)


def filesystem(url: str, key: str = KEY) -> Any:
    """Connect adlfs to a blob service, as the hook of the Azure provider does."""
    from adlfs import AzureBlobFileSystem

    text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={url};"
    return AzureBlobFileSystem(connection_string=text, skip_instance_cache=True)
