"""The server itself: bodies, connections, addresses, accounts."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
import requests

from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.emulator.files import Account
from airflow_provider_scope.exceptions import InputError
from tests.emulator.conftest import Files, Jobs


def exchange(emulator, request: bytes) -> bytes:
    """Send bytes and read until the server closes."""
    with socket.create_connection(("127.0.0.1", emulator.port), timeout=30) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


PUT = b"PUT /webhdfs/v1/f?op=CREATE&write=true&overwrite=true HTTP/1.1\r\nHost: x\r\n"


def test_a_connection_stays_usable(emulator, files):
    request = PUT + b"Content-Length: 3\r\n\r\nabc"
    assert exchange(emulator, request + request).count(b"HTTP/1.1 201") == 2
    assert files.read("f").content == b"abc"


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 3\r\n\r\nab",
        b"Content-Length: -1\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ],
)
def test_a_body_that_is_malformed_or_cut_short_has_no_effect(emulator, headers):
    answer = exchange(emulator, PUT + headers)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"Connection: close" in answer
    assert not (emulator.account.root / "f").exists()


def test_a_call_that_writes_too_much_is_refused(emulator, files):
    emulator.set(max_append_bytes=4)
    assert files.create("f", b"1234").status_code == 201
    assert files.create("g", b"12345").status_code == 400


def test_a_port_that_is_taken_leaves_the_directory_free(emulator, tmp_path):
    with pytest.raises(OSError, match="in use"):
        Emulator(tmp_path / "other", port=emulator.port).start()
    with Emulator(tmp_path / "other") as other:
        assert other.port != emulator.port


def test_a_path_may_begin_with_an_account(emulator):
    (emulator.account.root / "f").write_bytes(b"1")
    assert Files(emulator.url + "/acct").names() == ["f"]


@pytest.mark.parametrize("path", ["", "/nothing", "/acct/nothing", "/Jobs/1/2/3"])
def test_a_path_that_no_service_has_is_not_found(emulator, path):
    assert requests.get(f"{emulator.url}{path}", timeout=30).status_code == 404


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/a/b.ss", "a/b.ss"),
        ("a//./b.ss", "a/b.ss"),
        ("adl://acct.azuredatalakestore.net/a/b.ss", "a/b.ss"),
        ("abfss://lake@acct.dfs.core.windows.net/a/b", "lake/a/b"),
        ("/a b+%20", "a b+%20"),
    ],
)
def test_a_location_in_a_script_is_a_path_of_the_account(tmp_path, uri, expected):
    account = Account(tmp_path)
    assert account.local(uri) == tmp_path / expected


@pytest.mark.parametrize(
    "uri",
    ["../x", "file:///etc/passwd", "s3://b/k", "abfss://nothing/a", "/.emulator/jobs", "/out/x", "/a\0b"],
)
def test_a_location_outside_of_the_account_is_refused(tmp_path, uri):
    account = Account(tmp_path / "account")
    (account.root / "out").symlink_to(tmp_path)
    with pytest.raises(InputError):
        account.local(uri)


def test_the_emulator_needs_neither_airflow_nor_spark():
    code = (
        "import sys, airflow_provider_scope.emulator.__main__ as m;"
        "print([n for n in ('airflow', 'pyspark', 'py4j') if n in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


def test_a_connection_that_is_kept_open_does_not_reach_a_stopped_emulator(emulator, start_emulator):
    jobs, files = Jobs(emulator.url), Files(emulator.url)
    assert (jobs.put().status_code, files.create("f").status_code) == (200, 201)
    port = emulator.port
    emulator.stop()
    for send in (jobs.put, lambda: files.create("g")):
        with pytest.raises(requests.ConnectionError):
            send()
    assert not (emulator.account.root / "g").exists()
    start_emulator(port=port)
    assert jobs.list().status_code == 200


def test_a_fault_of_the_emulator_itself_is_told(emulator, monkeypatch):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(emulator._jobs, "items", broken)
    answer = Jobs(emulator.url).list()
    assert (answer.status_code, answer.text) == (500, "RuntimeError: broken")
