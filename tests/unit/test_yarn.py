"""What YARN's ResourceManager says of applications."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Connection

from airflow_provider_scope.engines.manager import Application
from airflow_provider_scope.engines.yarn import ADDRESS, Yarn
from tests.client.server import Reply, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.client.server import Asked


def an_app(name: str, number: int) -> dict[str, Any]:
    return {"id": f"app_{number}", "applicationTags": name, "startedTime": number, "state": "RUNNING"}


def test_two_applications_of_one_name_do_not_stand_for_one_of_another(tmp_path: Path) -> None:
    """A ResourceManager that was started again reads what it runs one by one."""
    first_apps = [an_app("a", 1), an_app("a", 2)]
    answers = iter([first_apps, [*first_apps, an_app("b", 3)]])

    def reply(asked: Asked) -> Reply:
        if asked.path.endswith("/info"):
            return Reply(body={"clusterInfo": {"startedOn": 1, "haState": "ACTIVE"}})
        return Reply(body={"apps": {"app": next(answers)}})

    with serving() as server:
        server.answers = reply
        extra = json.dumps({ADDRESS: server.url})
        yarn = Yarn(
            Connection(conn_id="cluster", conn_type="spark", host="yarn", extra=extra), tmp_path / "log"
        )
        assert yarn.get_jobs(["a", "b"]).keys() == {"a", "b"}


@pytest.mark.parametrize("apps", [None, "", {}, {"app": None}, {"app": []}])
def test_a_list_without_applications_says_that_there_is_none(tmp_path: Path, apps: Any) -> None:
    """Hadoop writes it in one way or the other, by its version."""

    def reply(asked: Asked) -> Reply:
        if asked.path.endswith("/info"):
            return Reply(body={"clusterInfo": {"startedOn": 1, "haState": "ACTIVE"}})
        return Reply(body={"apps": apps})

    with serving() as server:
        server.answers = reply
        extra = json.dumps({ADDRESS: server.url, "http_retries": 0})
        connection = Connection(conn_id="cluster", conn_type="spark", host="yarn", extra=extra)
        assert Yarn(connection, tmp_path / "log").get_job("p-0-0") is None


def test_tags_of_the_user_are_beside_the_name_by_which_an_application_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[str] = []
    monkeypatch.setattr(
        "airflow_provider_scope.engines.yarn.submit_application",
        lambda application, conf, **_: submitted.append(conf["spark.yarn.tags"]),
    )
    extra = json.dumps({ADDRESS: "rm:8088"})
    yarn = Yarn(Connection(conn_id="cluster", conn_type="spark", host="yarn", extra=extra), tmp_path / "log")
    for conf in ({}, {"spark.yarn.tags": "team-a,nightly"}):
        yarn.submit(
            Application(
                name="p-0-0", script=tmp_path, archive=tmp_path, arguments=(), conf=conf, stage=lambda _: ""
            )
        )

    assert submitted == ["p-0-0", "p-0-0,team-a,nightly"]
