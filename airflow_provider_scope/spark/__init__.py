"""The Spark application. Shipped to Spark with ``core`` and ``exceptions``; never imports Airflow.

``load`` is for notebooks and tests. It is found when it is asked for: it is not part of what is shipped.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in {"load", "LoadResult"}:
        return getattr(import_module("airflow_provider_scope.session"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
