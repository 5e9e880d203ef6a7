"""Pipelines in one server, in any order, side by side, failing, killed: none sees anything of another."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.engines.application import delta_package, write_zip
from airflow_provider_scope.engines.spark import ApplicationEvents, SubmitEngine
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.hooks.databases import DRIVERS
from tests.spark.test_server import HANGS, a_pipe, applications, home, land, servers
from tests.support.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.warm import Pipe

__all__ = ["home"]

pytestmark = [pytest.mark.spark, pytest.mark.loads]

SPY = """
from airflow_provider_scope.spark import server

with server.opened() as spark:
    jvm = spark._jvm
    default = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    print("settings", spark.conf.getAll, default.conf().getAll().toString())
    print("context", spark.sparkContext.getConf().getAll())
    print("hadoop", [entry.toString() for entry in spark.sparkContext._jsc.hadoopConfiguration().iterator()])
    print("java", jvm.java.lang.System.getProperties().toString(), jvm.java.lang.System.getenv().toString())
    print("views", spark.catalog.listTables(), spark.sparkContext._jsc.getLocalProperty("spark.job.tags"))
    print("the spy has seen all")
"""
"""An application that says all that it can see."""
ENGINE = {"server": "auto", "packages": [delta_package(), DRIVERS["sqlite"][1]]}
ROUNDS = 2


class Mixed:
    """A pipeline, and the rows that its table is to have.

    :param number: Its rows begin with it. An even one reads files, an odd one a database of its own, whose
        URL is a setting of the session; every second one of each merges.
    """

    def __init__(self, folder: Path, number: int, patch: pytest.MonkeyPatch) -> None:
        self.number = number
        self.rows = Counter[tuple[Any, ...]]()
        self.database = folder / f"secret-of-{number}.db" if number % 2 else None
        write = {"kind": "merge", "primary_key": ["id"], "strategy": "upsert"} if number % 4 > 1 else "append"
        arguments: dict[str, Any] = {"engine": ENGINE, "write": write}
        if self.database:
            connection = {"conn_type": "sqlite", "host": str(self.database)}
            patch.setenv(f"AIRFLOW_CONN_MIXED{number}", json.dumps(connection))
            arguments["source"] = {"conn_id": f"mixed{number}", "table": "rows", "cursor": {"column": "id"}}
            with closing(sqlite3.connect(self.database)) as opened:
                opened.execute("CREATE TABLE rows (id INTEGER NOT NULL)")
        self.pipe: Pipe = a_pipe(folder, f"p{number}", **arguments)

    def land(self, turn: int) -> None:
        ids = [turn * 10 + more for more in range(3)]
        if self.database:
            with closing(sqlite3.connect(self.database)) as opened:
                opened.executemany("INSERT INTO rows VALUES (?)", [(number,) for number in ids])
                opened.commit()
        else:
            land(self.pipe, *ids)
        self.rows.update((self.number * 1000 + number,) for number in ids)

    def run(self, fate: str, delay: float) -> str:
        """Run it, to whatever end; return the error."""
        select = f"SELECT d.id + {self.number * 1000} AS id FROM @data d"
        if fate == "fails":
            select += f" WHERE raise_error('of pipeline {self.number}')"
        time.sleep(delay)
        if fate != "is killed":
            try:
                self.pipe.run(sql=select)
            except ScopeProviderError as err:
                return str(err)
            return ""
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(self.pipe.run, sql=HANGS)
            assert eventually(lambda: bool(applications(self.pipe)) or run.done(), 120)
            time.sleep(3 * delay)
            for process in applications(self.pipe):
                process.send_signal(signal.SIGKILL)
            with suppress(ScopeProviderError):
                run.result()
        return ""

    def spy(self, turn: int) -> str:
        """Run an application with the settings of its engine that says what it can see; return that."""
        engine = self.pipe.execution()[0].engine
        assert isinstance(engine, SubmitEngine)
        script, archive = self.pipe.folder / f"spy{turn}.py", self.pipe.folder / f"spy{turn}.zip"
        engine.log_file = script.with_suffix(".log")
        script.write_text(SPY)
        write_zip(archive)
        engine._make_hook(archive, ApplicationEvents(print)).run(str(script), [])
        return engine.log_file.read_text()

    def transactions(self) -> list[tuple[str, int]]:
        """Return the transactions of the table's commits: whose they are, and their numbers."""
        files = sorted((self.pipe.table / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [(action["txn"]["appId"], action["txn"]["version"]) for action in actions if "txn" in action]


@pytest.mark.parametrize("seed", [int(os.environ.get("MIXED_SEED", "1"))])
def test_nothing_of_a_pipeline_reaches_another_one_through_their_server(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    chance = random.Random(seed)
    pipelines = [Mixed(tmp_path, number, monkeypatch) for number in range(4)]
    fates = ["loads", "loads", "fails", "is killed"]
    with ThreadPoolExecutor(4) as pool:
        for turn in range(ROUNDS):
            for pipeline in pipelines:
                pipeline.land(turn)
            chance.shuffle(pipelines)
            chance.shuffle(fates)
            delays = [chance.random() for _ in pipelines]
            spied = [pool.submit(p.spy, turn) for p in pipelines if not p.database]
            errors = list(pool.map(Mixed.run, pipelines, fates, delays))
            for text in (spy.result() for spy in spied):
                assert "the spy has seen all" in text
                assert "secret-of" not in text
            for pipeline, fate, error in zip(pipelines, fates, errors, strict=True):
                assert (f"of pipeline {pipeline.number}" in error) is (fate == "fails"), error
        errors = list(pool.map(Mixed.run, pipelines, ["loads"] * 4, [0.0] * 4))

    assert errors == [""] * 4
    assert len(servers(home)) == 1
    for pipeline in pipelines:
        owner = json.loads((pipeline.pipe.table / "_checkpoint/pipeline.json").read_text())["pipeline"]
        assert Counter(pipeline.pipe.rows()) == pipeline.rows
        transactions = pipeline.transactions()
        assert {name for name, _ in transactions} == {owner}
        assert [number for _, number in transactions] == sorted({number for _, number in transactions})
        log = (pipeline.pipe.folder / "spark.log").read_text()
        assert not any(f"secret-of-{other.number}" in log for other in pipelines if other is not pipeline)
