"""The hooks against a service on loopback."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from airflow_provider_scope.hooks.adls_gen1 import AdlsGen1Hook
from airflow_provider_scope.hooks.scope import ScopeHook
from airflow_provider_scope.scope.jobs import NewJob
from airflow_provider_scope.stores.webhdfs import Status
from airflow_provider_scope.values import FileEntry
from tests.client.server import Reply

ID = "d2a5c7d4-0d0f-4d4b-8a6c-2a0d5f1f3f10"
JOB = {"jobId": ID, "name": "n", "state": "Running", "result": "None"}
UNKNOWN = Reply(404, {"error": {"code": "JobNotFound", "message": "Job is not found."}})
ACME = {"account_name": "acme"}


def listing(*names: str) -> Reply:
    entries = [{"length": 5, "pathSuffix": n, "type": "FILE", "modificationTime": 7} for n in names]
    return Reply(200, {"FileStatuses": {"continuationToken": "", "FileStatus": entries}})


def test_jobs_are_submitted_read_listed_and_cancelled_through_the_connection(server, connect):
    server.answers = [Reply(200, JOB), Reply(200, JOB), UNKNOWN, Reply(200, {"value": [JOB]}), Reply(200)]
    hook = ScopeHook(connect(host=server.url, extra=ACME))

    submitted = hook.submit_job(ID, NewJob(name="n", script="s", degree_of_parallelism=1, priority=1))
    read = hook.get_job(ID)
    unknown = hook.get_job(ID)
    listed = list(hook.list_jobs("state ne 'Ended'", "submitTime desc", 5))
    hook.cancel_job(ID)
    hook.close()

    assert submitted.state == "Running"
    assert read == submitted == listed[0]
    assert unknown is None
    assert server.said == [
        f"PUT /Jobs/{ID}",
        f"GET /Jobs/{ID}",
        f"GET /Jobs/{ID}",
        "GET /Jobs",
        f"POST /Jobs/{ID}/CancelJob",
    ]
    assert set(server.bearers) == {"Bearer emulator"}


def test_files_are_listed_read_and_written_through_the_connection(server, connect):
    about = Reply(200, {"FileStatus": {"length": 5, "pathSuffix": "", "type": "FILE", "modificationTime": 7}})
    yes = Reply(200, {"boolean": True})
    missing = Reply(404, {"RemoteException": {"exception": "FileNotFoundException"}})
    server.answers = [listing("a.ss"), listing("a.ss"), about, about, Reply(200, b"bytes")]
    server.answers += [missing, Reply(201), yes, missing, about, Reply(201), yes, missing]
    server.answers += [about, about, Reply(200, b"bytes"), yes, yes, yes]
    hook = AdlsGen1Hook(connect("adls_gen1", host=server.url, extra=ACME))

    walked = list(hook.walk("/landing"))
    page = hook.list_page("/landing", after="A", size=3)
    status = hook.get_status("/landing/a.ss")
    read = hook.read("/landing/a.ss", length=5)
    created = hook.write("/landing/b.ss", b"x")
    replaced = hook.write("/landing/b.ss", b"y", create=False)
    again = hook.write("/landing/b.ss", b"x")
    hook.mkdirs("/landing/c")
    renamed = hook.rename("/landing/b.ss", "/landing/c/b.ss")
    hook.delete("/landing/c", recursive=True)
    hook.close()

    assert walked == [FileEntry(7, "adl://acme.azuredatalakestore.net/landing/a.ss", 5)]
    assert page.entries == (Status(name="a.ss", is_folder=False, size_bytes=5, modified_ms=7),)
    assert status == Status(name="", is_folder=False, size_bytes=5, modified_ms=7)
    assert (read, created, replaced, again, renamed) == (b"bytes", True, True, False, True)
    operations = [asked.query["op"] for asked in server.asked]
    assert operations[:5] == ["LISTSTATUS", "LISTSTATUS", "GETFILESTATUS", "GETFILESTATUS", "OPEN"]
    assert operations[5:13] == ["GETFILESTATUS", "CREATE", "RENAME", "DELETE"] * 2
    assert operations[13:] == ["GETFILESTATUS", "GETFILESTATUS", "OPEN", "MKDIRS", "RENAME", "DELETE"]


def test_the_token_of_a_connection_is_asked_for_once_by_all_its_hooks(server, connect, monkeypatch):
    allowed = "tests.hooks.our_credentials.Good"
    monkeypatch.setenv("AIRFLOW__ADLA_SCOPE__ALLOWED_CREDENTIAL_CLASSES", allowed)
    from tests.hooks import our_credentials

    monkeypatch.setattr(our_credentials, "SCOPES", [])
    server.answers = lambda _: UNKNOWN
    extra = {**ACME, "credential_class": allowed, "credential_kwargs": {"name": "acme"}}
    conn_id = connect(host=server.url, extra=extra)

    for _ in range(3):
        ScopeHook(conn_id).get_job(ID)

    assert server.bearers == ["Bearer token of acme"] * 3
    assert len(our_credentials.SCOPES) == 1


def test_the_retries_and_texts_of_the_connection_hold(server, connect):
    server.answers = [Reply(400, b"wait for it"), Reply(503), UNKNOWN]
    extra = {**ACME, "http_retries": 1, "retry_on_error_messages": ["wait for it"]}
    hook = ScopeHook(connect(host=server.url, extra=extra))
    waits = []
    http = hook.get_conn()._http
    http.repeating = replace(http.repeating, sleep=waits.append)

    assert hook.get_job(ID) is None
    assert len(waits) == 2


def test_a_hook_of_a_connection_that_was_read_before_does_not_read_it_again(server, monkeypatch):
    from airflow.sdk import Connection

    monkeypatch.setattr(ScopeHook, "get_connection", lambda *_: pytest.fail("it was read"))
    server.answers = [UNKNOWN]
    connection = Connection(
        conn_id="x", conn_type="adla_scope", host=server.url, extra='{"account_name": "a"}'
    )

    assert ScopeHook("x", connection=connection).get_job(ID) is None


def test_the_test_of_a_connection_says_what_it_saw_and_what_it_did_not(server, connect):
    server.answers = [Reply(200, {"value": []}), listing()]

    jobs = ScopeHook(connect(host=server.url, extra=ACME)).test_connection()
    files = AdlsGen1Hook(
        connect("adls_gen1", host=server.url, extra={**ACME, "base_path": "/landing"})
    ).test_connection()

    assert jobs == (
        True,
        (
            f"{server.url} accepted the identity and listed its jobs. Not checked: the right to submit and "
            "to cancel jobs, and the jobs' own rights on source files and tables."
        ),
    )
    assert files == (
        True,
        (
            f"{server.url} accepted the identity and listed the folder /landing. Not checked: the right to "
            "list other folders, to read and to write."
        ),
    )
    assert server.asked[0].query["$top"] == "1"
    assert server.asked[1].path == "/webhdfs/v1/landing"


def test_the_test_of_a_connection_that_fails_says_why(server, connect):
    server.answers = lambda _: Reply(403, {"error": {"code": "Forbidden", "message": "not you"}})

    jobs = ScopeHook(connect(host=server.url, extra=ACME)).test_connection()
    files = AdlsGen1Hook(connect("adls_gen1", host=server.url, extra=ACME)).test_connection()
    wrong = ScopeHook(connect(host=server.url, extra={**ACME, "au": -1})).test_connection()

    assert jobs[0] is files[0] is wrong[0] is False
    assert jobs[1].startswith("Could not list the jobs: 403 Forbidden: not you.\n")
    assert files[1].startswith("Could not list the folder adl://acme.azuredatalakestore.net/: 403 Forbidden")
    assert "au=-1" in wrong[1]


def test_airflows_own_way_to_test_a_connection_reaches_the_hook(server):
    from airflow.models.connection import Connection

    server.answers = [Reply(200, {"value": []})]
    connection = Connection(
        conn_id="tried", conn_type="adla_scope", host=server.url, extra='{"account_name": "a"}'
    )

    hook = connection.get_hook()

    assert type(hook) is ScopeHook
    assert hook.scope_conn_id == "tried"


def test_secrets_of_a_connection_are_in_no_log_and_no_repr(server, connect, caplog, monkeypatch):
    allowed = "tests.hooks.our_credentials.Good"
    monkeypatch.setenv("AIRFLOW__ADLA_SCOPE__ALLOWED_CREDENTIAL_CLASSES", allowed)
    caplog.set_level(logging.DEBUG)
    server.answers = [Reply(401, b"token of s3cr3t is no good"), Reply(401, b"token of s3cr3t is no good")]
    extra = {**ACME, "credential_class": allowed, "credential_kwargs": {"name": "s3cr3t"}}
    hook = ScopeHook(connect(host=server.url, login="c", extra=extra))

    worked, text = hook.test_connection()
    shown = " ".join([text, caplog.text, repr(hook), repr(vars(hook)), repr(hook.get_conn()._http)])

    assert not worked
    assert "*** is no good" in text
    assert "s3cr3t" not in shown
