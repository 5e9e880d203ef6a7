"""The data sets of Vega, all of them: fetched once from npm."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "3.2.1"
MISSING = "install node and npm (Debian: apt-get install nodejs npm): Vega's data are on npm"


def install() -> Path:
    """Give the folder of the files below the virtual environment; fetch them if they are not there.

    :raises RuntimeError: npm is missing, or it failed.
    """
    if not shutil.which("npm"):
        raise RuntimeError(MISSING)
    folder = Path(sys.prefix) / f"vega-datasets-{VERSION}"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(dir=sys.prefix, prefix=".vega-"))
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(fresh)]
        done = subprocess.run(
            [*command, f"vega-datasets@{VERSION}"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            shutil.rmtree(fresh)
            msg = f"npm could not install vega-datasets@{VERSION}: {done.stderr.strip()[-500:]}"
            raise RuntimeError(msg)
        try:
            fresh.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return folder / "node_modules" / "vega-datasets" / "data"
