"""What is fetched once, and kept below the virtual environment."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def kept(name: str, fetch: Callable[[Path], Path]) -> Path:
    """Return the file or folder of this name; one that is missing is what `fetch` makes in a new folder."""
    path = Path(sys.prefix) / name
    if not path.exists():
        folder = Path(tempfile.mkdtemp(dir=sys.prefix, prefix=f".{name}-"))
        try:
            fetch(folder).rename(path)
        except OSError:
            if not path.exists():  # otherwise another process was faster
                raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return path
