"""A local emulator of the two retired services: ADLA's jobs and ADLS Gen1's files.

``Emulator(root)`` serves both on loopback over one directory. It contacts no Azure service.
"""

from airflow_provider_scope.emulator.emulator import Emulator
from airflow_provider_scope.emulator.switches import Fault, Switches

__all__ = ["Emulator", "Fault", "Switches"]
