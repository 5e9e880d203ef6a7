"""How many generated inputs a run makes, and from which seed: the one place that reads the environment."""

from __future__ import annotations

import os

from tests.crash.share import turn_of_commit

WHOLE = 1_000
"""Generated inputs of the whole suite."""
CASES = int(os.environ.get("DATA_CASES", "12"))
"""Generated inputs for each test; each has up to twelve files."""
LARGE = CASES >= WHOLE
"""Whether all real files are read, too."""
FIRST = int(os.environ.get("DATA_SEED", 0 if LARGE else WHOLE + turn_of_commit() * CASES))
"""The first seed. A small run has other ones with each commit, so that it finds in time what no whole run has
found. To replay the seed that failed: ``DATA_SEED=17 DATA_CASES=1 pytest -m slow tests/datasets``."""


def seeds(share: float = 1.0) -> range:
    """Return the seeds of a run; a test that is slow takes a share of them."""
    return range(FIRST, FIRST + max(1, round(CASES * share)))
