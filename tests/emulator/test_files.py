"""The protocol cases of the file service."""

from __future__ import annotations

import os
import threading

import pytest
import requests

FILE_KEYS = [
    *("length", "pathSuffix", "type", "blockSize", "accessTime", "modificationTime", "replication"),
    *("permission", "owner", "group", "msExpirationTime", "aclBit"),
]


def error_of(answer):
    return answer.status_code, answer.json()["RemoteException"]["exception"]


@pytest.fixture
def root(emulator):
    return emulator.account.root


def test_case_30_a_page_that_is_full_has_a_token(files, root):
    names = [f"f{n}" for n in range(10)]
    for name in names:
        (root / name).write_bytes(b"x")
    page = files.list(listSize=10)
    assert page["continuationToken"] == "f9"
    assert files.list(listSize=10, listAfter="f9") == {"continuationToken": "", "FileStatus": []}
    assert files.list(listSize=11)["continuationToken"] == ""
    pages, after = [], None
    while after != "":
        page = files.list(listSize=2, listAfter=after)
        pages.append([entry["pathSuffix"] for entry in page["FileStatus"]])
        after = page["continuationToken"]
    assert pages == [names[0:2], names[2:4], names[4:6], names[6:8], names[8:10], []]


def test_case_32_a_token_of_a_deleted_name_leads_on_after_it(files, root):
    for name in "abcd":
        (root / name).write_bytes(b"")
    assert files.list(listSize=2)["continuationToken"] == "b"
    (root / "b").unlink()
    assert files.names(listSize=2, listAfter="b") == ["c", "d"]


def test_case_33_listing_a_file_gives_the_file_itself(files, root):
    (root / "f").write_bytes(b"12")
    entries = files.list("f")["FileStatus"]
    assert [(entry["pathSuffix"], entry["length"]) for entry in entries] == [("", 2)]


def test_case_34_a_status_has_the_recorded_keys_in_their_order(files, root):
    (root / "f").write_bytes(b"123")
    (root / "d").mkdir()
    file, folder = files.status("f"), files.status("d")
    assert list(file) == FILE_KEYS
    assert list(folder) == [key for key in FILE_KEYS if key != "msExpirationTime"]
    assert (file["length"], file["type"], file["blockSize"], file["replication"]) == (3, "FILE", 268435456, 1)
    assert (folder["length"], folder["type"], folder["blockSize"]) == (0, "DIRECTORY", 0)
    assert (file["permission"], file["pathSuffix"]) == ("770", "")
    assert file["modificationTime"] == (root / "f").stat().st_mtime_ns // 1_000_000


def test_case_35_create_answers_201_or_leads_on(files, root):
    answer = files.create("a/b/f", b"data")
    assert (answer.status_code, answer.headers["Content-Length"]) == (201, "0")
    assert (root / "a/b/f").read_bytes() == b"data"
    first = files.call("PUT", "CREATE", "g", overwrite="true")
    assert first.status_code == 307
    assert not (root / "g").exists()
    second = requests.put(first.headers["Location"], data=b"more", timeout=30)
    assert second.status_code == 201
    assert (root / "g").read_bytes() == b"more"


def test_case_36_create_replaces_only_when_told_to(files, root):
    files.create("f", b"old")
    refused = files.call("PUT", "CREATE", "f", data=b"new", write="true", overwrite="false")
    assert error_of(refused) == (403, "FileAlreadyExistsException")
    assert (root / "f").read_bytes() == b"old"
    files.create("f", b"new")
    assert (root / "f").read_bytes() == b"new"


def test_case_39_reading_gives_at_most_what_was_asked_for(files):
    files.create("f", b"0123456789")
    part = files.read("f", offset=3, length=4)
    assert part.content == b"3456"
    assert part.headers["Transfer-Encoding"] == "chunked"
    assert part.headers["Content-Type"] == "application/octet-stream"
    assert files.read("f", offset=8, length=100).content == b"89"
    assert error_of(files.read("f", offset=10)) == (400, "BadOffsetException")
    assert files.call("GET", "OPEN", "f").status_code == 307


def test_case_41_rename_follows_the_rules_of_hdfs(files, root):
    missing = files.call("PUT", "RENAME", "none", destination="/x")
    assert missing.json() == {"boolean": False}
    files.create("f", b"1")
    os.utime(root / "f", ns=(0, 5_000_000_000))
    (root / "d").mkdir()
    assert files.call("PUT", "RENAME", "f", destination="d").json() == {"boolean": True}
    assert files.status("d/f")["modificationTime"] == 5000
    files.create("g", b"2")
    assert files.call("PUT", "RENAME", "g", destination="d/f").json() == {"boolean": False}
    replaced = files.call("PUT", "RENAME", "g", destination="d/f", renameoptions="OVERWRITE")
    assert replaced.json() == {"boolean": True}
    assert (root / "d/f").read_bytes() == b"2"
    assert files.call("PUT", "RENAME", "d/f", destination="/d/f").json() == {"boolean": True}
    assert files.call("PUT", "RENAME", "d", destination="/d").json() == {"boolean": False}
    assert files.call("PUT", "RENAME", "d", destination="/d/inner").json() == {"boolean": False}


def test_case_42_delete_tells_what_was_there(files, root):
    assert files.call("DELETE", "DELETE", "none").json() == {"boolean": False}
    files.create("d/f", b"1")
    assert files.call("DELETE", "DELETE", "d", recursive="false").status_code == 403
    assert files.call("DELETE", "DELETE", "d", recursive="true").json() == {"boolean": True}
    assert not (root / "d").exists()
    assert files.call("DELETE", "DELETE", "", recursive="true").status_code == 403


def test_case_43_the_time_of_a_folder_moves_with_its_direct_children_alone(files, root):
    files.create("d/c/f", b"1")

    def moved(act):
        for folder in ("d", "d/c"):
            os.utime(root / folder, ns=(0, 0))
        act()
        return [files.status(folder)["modificationTime"] > 0 for folder in ("d", "d/c")]

    assert moved(lambda: files.create("d/new", b"")) == [True, False]
    assert moved(lambda: files.create("d/c/new", b"")) == [False, True]
    assert moved(lambda: files.call("POST", "APPEND", "d/c/f", data=b"2", append="true")) == [False, False]
    assert moved(lambda: files.call("DELETE", "DELETE", "d/new")) == [True, False]


def test_case_49_a_listing_loses_and_doubles_nothing_while_files_come_in(files, emulator, root):
    from tests.emulator.conftest import Files

    before = [f"old{n:03}" for n in range(60)]
    for name in before:
        (root / name).write_bytes(b"")

    def write(worker):
        mine = Files(emulator.url)
        for n in range(4):
            assert mine.create(f"new-{worker}-{n}").status_code == 201

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for _ in range(5):
        seen, after = [], None
        while after != "":
            page = files.list(listSize=7, listAfter=after)
            seen += [entry["pathSuffix"] for entry in page["FileStatus"]]
            after = page["continuationToken"]
        assert len(seen) == len(set(seen))
        assert [name for name in seen if name.startswith("old")] == before
    for writer in writers:
        writer.join()
    assert len(files.names()) == 60 + 8 * 4


@pytest.mark.parametrize(
    "path",
    [
        "%2e%2e/secret",
        "a/%2E%2E/%2E%2E/secret",
        "..%2fsecret",
        "out/secret",
        "out",
        ".emulator/jobs",
        "a%00b",
    ],
)
def test_no_path_leads_out_of_the_account(files, root, path):
    outside = root.parent / "secret"
    outside.write_bytes(b"secret")
    (root / "out").symlink_to(root.parent)
    prepared = requests.Request("GET", "http://x").prepare()
    prepared.url = f"{files.url}/webhdfs/v1/{path}?op=OPEN&read=true"
    answer = files.session.send(prepared, timeout=30, allow_redirects=False)
    assert answer.status_code == 403
    prepared.url = f"{files.url}/webhdfs/v1/{path}?op=CREATE&write=true&overwrite=true"
    prepared.method = "PUT"
    assert files.session.send(prepared, timeout=30).status_code == 403
    assert outside.read_bytes() == b"secret"
    assert files.names() == []


def test_a_link_inside_the_account_is_followed(files, root):
    files.create("d/f", b"1")
    (root / "link").symlink_to(root / "d")
    assert files.names("link") == ["f"]


def test_the_destination_of_a_rename_stays_inside_too(files, root):
    files.create("f", b"1")
    assert files.call("PUT", "RENAME", "f", destination="../f").status_code == 403
    assert (root / "f").exists()


@pytest.mark.parametrize(
    ("request_line", "params", "error"),
    [
        ("GET OPEN none", {"read": "true"}, (404, "FileNotFoundException")),
        ("GET OPEN f", {"read": "true", "offset": "x"}, (400, "IllegalArgumentException")),
        ("GET LISTSTATUS secret", {}, (403, "AccessControlException")),
        ("GET LISTSTATUS_BATCH f", {}, (400, "UnsupportedOperationException")),
        ("GET LISTSTATUS %2e%2e", {}, (403, "AccessControlException")),
        ("POST APPEND f", {"append": "true", "offset": "7"}, (400, "BadOffsetException")),
        ("PUT CREATE f", {"write": "true", "overwrite": "false"}, (403, "FileAlreadyExistsException")),
        ("GET LISTSTATUS throttled", {}, (429, "ThrottledException")),
    ],
)
def test_case_46_every_error_has_a_length_and_its_request(emulator, files, request_line, params, error):
    files.create("f", b"1")
    emulator.set(denied_paths=["/secret"])
    if error[0] == 429:
        emulator.set(faults=[{"kind": "status", "service": "files", "status": 429}])
    answer = files.call(*request_line.split(" "), **params)
    assert error_of(answer) == error
    assert "Transfer-Encoding" not in answer.headers
    assert int(answer.headers["Content-Length"]) == len(answer.content) > 0
    message = answer.json()["RemoteException"]["message"]
    assert f" [{answer.headers['x-ms-request-id']}][20" in message
