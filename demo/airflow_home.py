"""A private Airflow in the demo's folder, and a run of the example in it.

Nothing of an Airflow that this machine may have is read or changed.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.engines import Engine

EXAMPLES = Path(__file__).parent.parent / "dags_examples"
TASK_ID = "load_flights"


class RunFailedError(Exception):
    """A run of the example failed; the message is the task's own."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one demo, and what loads them."""

    folder: Path
    engine: Engine

    @property
    def landing(self) -> Path:
        """Where the files arrive."""
        return self.folder / "landing"

    @property
    def table(self) -> Path:
        """The Delta table."""
        return self.folder / "delta" / "flights"

    @property
    def checkpoint(self) -> Path:
        """The table's checkpoint."""
        return self.table / "_checkpoint"

    @property
    def logs(self) -> Path:
        """Logs of Airflow and of Spark."""
        return self.folder / "logs"

    def spark_logs(self) -> list[Path]:
        """Return one log for each start of Spark."""
        return sorted(self.logs.rglob("spark.*.log"))


def enter(home: Home) -> None:
    """Point Airflow at the demo's folder; before Airflow is imported."""
    if "airflow" in sys.modules:
        msg = "Airflow reads its configuration when it is imported"
        raise AssertionError(msg)
    (home.folder / "airflow").mkdir(parents=True, exist_ok=True)
    for name in list(os.environ):
        # Another Airflow's settings, and another Spark's: this environment has its own.
        if name.startswith("AIRFLOW_") or name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON"):
            del os.environ[name]
    os.environ.update(
        AIRFLOW_HOME=str(home.folder / "airflow"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__DAGS_FOLDER=str(EXAMPLES),
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{home.folder}/airflow/airflow.db",
        AIRFLOW__LOGGING__BASE_LOG_FOLDER=str(home.logs),
    )


def create_database() -> None:
    """Make Airflow's database."""
    from airflow.utils.db import initdb  # noqa: PLC0415 - Airflow reads its settings when it is imported

    initdb()


def run_example(home: Home, show: Callable[[str], None]) -> dict[str, Any]:
    """Run the example once and give what its task returned.

    :param show: Takes each message of the task, while it works.
    :raises RunFailedError: The task failed.
    """
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415 - see create_database
    from airflow.models.xcom import XComModel  # noqa: PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415

    dag_id = home.engine.dag_id
    bag = DagBag(dag_folder=str(EXAMPLES / f"{dag_id}.py"))
    if bag.import_errors:
        raise RunFailedError("\n".join(bag.import_errors.values()))
    dag = bag.dags[dag_id]
    failures: list[str] = []
    for task in dag.tasks:
        task.on_failure_callback = [lambda context: failures.append(str(context["exception"]))]
        # Its own messages go to the screen, and no others.
        task._cached_logger = _logger(task.task_id, show)  # type: ignore[assignment]  # noqa: SLF001
    run = dag.test(run_conf={"landing": home.engine.root(home), "table": str(home.table)})
    if run.state != "success":
        raise RunFailedError("\n".join(failures) or f"the run ended as {run.state}")
    with create_session() as session:
        query = XComModel.get_many(run_id=run.run_id, key="return_value", dag_ids=dag_id, task_ids=TASK_ID)
        return dict(XComModel.deserialize_value(session.scalars(query).one()))


def _logger(task_id: str, show: Callable[[str], None]) -> logging.Logger:
    logger = logging.getLogger(f"demo.task.{task_id}")
    logger.setLevel(logging.INFO)
    logger.handlers = [_Show("" if task_id == TASK_ID else f"{task_id}: ", show)]
    return logger


class _Show(logging.Handler):
    def __init__(self, prefix: str, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self.prefix = prefix
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        self.show(self.prefix + record.getMessage())
