"""Packages from npm, fetched once and kept below the virtual environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MISSING = "install node and npm (Debian: apt-get install nodejs npm): {} is on npm"


def install(name: str, version: str) -> Path:
    """Return the folder of a package; fetch it if it is not there.

    :raises RuntimeError: Node or npm is missing, or npm failed.
    """
    if not shutil.which("node") or not shutil.which("npm"):
        raise RuntimeError(MISSING.format(name))
    label = name.replace("/", "+")
    folder = Path(sys.prefix) / f"{label}-{version}"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(dir=sys.prefix, prefix=f".{label}-"))
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(fresh)]
        done = subprocess.run([*command, f"{name}@{version}"], capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(fresh)
            msg = f"npm could not install {name}@{version}: {done.stderr.strip()[-500:]}"
            raise RuntimeError(msg)
        try:
            fresh.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return folder / "node_modules" / name
