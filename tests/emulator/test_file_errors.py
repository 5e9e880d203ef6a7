"""The protocol cases on what the file service answers when it refuses."""

from __future__ import annotations

import pytest

from tests.emulator.test_files import error_of


def test_case_46_an_error_has_a_length_a_status_and_its_request(files):
    answer = files.call("GET", "GETFILESTATUS", "none")
    assert int(answer.headers["Content-Length"]) == len(answer.content) > 0
    assert answer.headers["Status"] == "0x8309000A"
    assert answer.headers["x-ms-webhdfs-version"] == "17.04.24.00"
    message = answer.json()["RemoteException"]["message"]
    start = "File/Folder does not exist: /none"
    assert message.startswith(f"{start} [{answer.headers['x-ms-request-id']}][20")


@pytest.mark.parametrize(
    ("request_line", "params", "status"),
    [
        ("GET OPEN none", {"read": "true"}, 404),
        ("GET OPEN f", {"read": "true", "offset": "x"}, 400),
        ("GET LISTSTATUS secret", {}, 403),
        ("GET NONSENSE f", {}, 400),
        ("GET LISTSTATUS %2e%2e", {}, 403),
        ("POST APPEND f", {"append": "true", "offset": "7"}, 400),
        ("PUT CREATE f", {"write": "true", "overwrite": "false"}, 403),
        ("GET LISTSTATUS throttled", {}, 429),
    ],
)
def test_case_46_every_error_has_a_length_and_its_request(emulator, files, request_line, params, status):
    files.create("f", b"1")
    files.create("d/f", b"1")
    emulator.set(denied_paths=["/secret"])
    if status == 429:
        emulator.set(faults=[{"kind": "status", "status": 429}])
    answer = files.call(*request_line.split(" "), **params)
    assert answer.status_code == status
    assert "Transfer-Encoding" not in answer.headers
    assert int(answer.headers["Content-Length"]) == len(answer.content) > 0
    assert answer.headers["Status"].startswith("0x83")
    remote = answer.json()["RemoteException"]
    assert list(remote) == ["exception", "message", "javaClassName"]
    assert f" [{answer.headers['x-ms-request-id']}][20" in remote["message"]


def test_case_47_an_unknown_operation_and_a_throttled_one(emulator, files):
    unknown = files.call("GET", "LISTSTATUS_BATCH")
    assert error_of(unknown) == (400, "UnsupportedOperationException")
    emulator.set(faults=[{"kind": "status", "service": "files", "status": 429, "times": 1}])
    throttled = files.call("GET", "LISTSTATUS")
    assert error_of(throttled) == (429, "ThrottledException")
    assert files.call("GET", "LISTSTATUS").status_code == 200
