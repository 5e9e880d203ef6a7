"""Packages from npm, fetched once and kept below the virtual environment."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.support.kept import kept

if TYPE_CHECKING:
    from pathlib import Path

MISSING = "install node and npm (Debian: apt-get install nodejs npm): {} is on npm"


def install(name: str, version: str) -> Path:
    """Return the folder of a package; fetch it if it is not there.

    :raises RuntimeError: Node or npm is missing, or npm failed.
    """
    if not shutil.which("node") or not shutil.which("npm"):
        raise RuntimeError(MISSING.format(name))

    def fetched(folder: Path) -> Path:
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
        done = subprocess.run([*command, f"{name}@{version}"], capture_output=True, text=True, check=False)
        if done.returncode:
            msg = f"npm could not install {name}@{version}: {done.stderr.strip()[-500:]}"
            raise RuntimeError(msg)
        return folder

    return kept(f"{name.replace('/', '+')}-{version}", fetched) / "node_modules" / name
