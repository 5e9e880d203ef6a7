"""How many generated inputs a run makes, and from which seed: the one place that reads the environment."""

from __future__ import annotations

import os

CASES = int(os.environ.get("DATA_CASES", "12"))
"""Generated inputs for each test; each has up to twelve files."""
LARGE = CASES >= 1_000
"""Whether all real files are read, too."""
FIRST = int(os.environ.get("DATA_SEED", "0"))
"""The first seed. To replay the seed that failed: ``DATA_SEED=17 DATA_CASES=1 pytest tests/datasets``."""


def seeds(share: float = 1.0) -> range:
    """Return the seeds of a run; a test that is slow takes a share of them."""
    return range(FIRST, FIRST + max(1, round(CASES * share)))
