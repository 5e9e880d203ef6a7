"""The data sets of Vega, all of them: fetched once from npm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import npm

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "3.2.1"


def install() -> Path:
    """Return the folder of the files.

    :raises RuntimeError: npm is missing, or it failed.
    """
    return npm.install("vega-datasets", VERSION) / "data"
