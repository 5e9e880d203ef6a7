"""What the application tells the worker while it runs."""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow_provider_scope.core.plan import EVENT


def emit(**event: Any) -> None:
    """Write an event as a line of the output."""
    sys.stdout.write(EVENT + json.dumps(event) + "\n")
    sys.stdout.flush()
