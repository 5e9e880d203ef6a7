"""What the application does not import, because the import costs more than its work with a small file."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_HELPERS = "pyspark.testing.utils"


class _WithoutNumpy(ModuleType):
    """Stands for pyspark's helpers of tests; gives way to them when more is asked for than numpy."""

    have_numpy = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(self.__name__, None)
        return getattr(importlib.import_module(self.__name__), name)


def leave_out_numpy() -> None:
    """Answer pyspark that there is no numpy, as on a machine without it.

    It asks its helpers of tests at the first call into Java, and they import pandas, pyarrow and more: 1.5 s
    of CPU time. The application has no value of numpy to give to Java.
    """
    sys.modules.setdefault(_HELPERS, _WithoutNumpy(_HELPERS))
