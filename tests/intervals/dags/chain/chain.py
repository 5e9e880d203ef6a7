"""The example of change data feeds, with folders of its own: a run that an asset starts has no others."""

from __future__ import annotations

import os
from pathlib import Path

import airflow.sdk  # noqa: F401 - Airflow looks at files that name it, and a DAG

FOLDER = os.environ["INTERVALS_FOLDER"]
EXAMPLE = Path(os.environ["INTERVALS_EXAMPLE"])
PLACES = {"/data/landing/orders": f"{FOLDER}/landing", "/data/delta": f"{FOLDER}/tables"}

text = EXAMPLE.read_text()
for its, ours in PLACES.items():
    if repr(its).replace("'", '"') not in text:
        raise ValueError(f"{EXAMPLE} has no {its}")
    text = text.replace(repr(its).replace("'", '"'), repr(ours))
exec(compile(text, str(EXAMPLE), "exec"), globals())
