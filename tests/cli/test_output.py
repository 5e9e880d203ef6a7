"""What the commands leave out of Airflow's own words."""

from __future__ import annotations

import logging

import structlog

from airflow_provider_scope.cli.output import quiet


def test_airflow_says_nothing_below_a_warning_while_it_loads_dags(caplog):
    caplog.set_level(logging.INFO, logger="airflow")
    heard = []

    def listen(_: object, method: str, event: dict[str, str]) -> None:
        heard.append((method, event["event"]))
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    processors.insert(0, listen)
    try:
        log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
        old = logging.getLogger("airflow.some.module")
        log.info("before")
        with quiet():
            log.info("chatter")
            log.warning("trouble")
            old.info("old chatter")
            old.warning("old trouble")
        with quiet(verbose=True):
            log.info("wanted")
            old.info("old and wanted")
        log.info("after")
    finally:
        processors.remove(listen)

    assert heard == [("info", "before"), ("warning", "trouble"), ("info", "wanted"), ("info", "after")]
    assert [record.getMessage() for record in caplog.records] == ["old trouble", "old and wanted"]
