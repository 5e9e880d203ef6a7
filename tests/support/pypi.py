"""Files of packages on PyPI that are not installed: fetched once, and kept below the virtual environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def fetch(name: str, version: str, *, kind: str = "binary") -> Path:
    """Return the folder with the files of a package; fetch it if it is not there.

    :param kind: ``binary`` for its wheel, ``source`` for the archive of its sources.
    :raises CalledProcessError: pip failed.
    """
    folder = Path(sys.prefix) / f"{name}-{version}"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(dir=sys.prefix, prefix=f".{name}-"))
        only = "--no-binary" if kind == "source" else "--only-binary"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", only, name, "-d", str(fresh)]
        subprocess.run([*command, f"{name}=={version}"], check=True)
        (archive,) = fresh.iterdir()
        shutil.unpack_archive(archive, fresh / "all", "zip" if archive.suffix == ".whl" else None)
        # An archive of sources has one folder.
        top = fresh / "all" / f"{name}-{version}" if kind == "source" else fresh / "all"
        top.rename(folder)
        shutil.rmtree(fresh)
    return folder
