"""Files are listed in full or not at all, and created once."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import (
    InputError,
    ServiceAuthError,
    ServiceError,
    ServiceOutcomeUnknownError,
    ServiceProtocolError,
    ServiceRefusedError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceUnreadableError,
)
from airflow_provider_scope.stores.calls import Repeating
from airflow_provider_scope.stores.http import HttpClient
from airflow_provider_scope.stores.webhdfs import Page, Status, WebHdfsClient
from airflow_provider_scope.values import FileEntry
from tests.client.server import DROP, Asked, Reply, client_of, serving

ROOT = "adl://acme.azuredatalakestore.net"


def remote(exception: str) -> dict[str, object]:
    return {"RemoteException": {"exception": exception, "message": "text [id][time]", "javaClassName": "j"}}


MISSING = Reply(404, remote("FileNotFoundException"))
DENIED = Reply(403, remote("AccessControlException"))
EXISTS = Reply(403, remote("FileAlreadyExistsException"))
TRUE, FALSE = Reply(200, {"boolean": True}), Reply(200, {"boolean": False})


def status(name: str, size: int = 0, *, folder: bool = False, modified: int = 7) -> dict[str, object]:
    kind = "DIRECTORY" if folder else "FILE"
    return {"length": size, "pathSuffix": name, "type": kind, "modificationTime": modified, "aclBit": False}


def page(*entries: dict[str, object], token: object = "") -> Reply:
    return Reply(200, {"FileStatuses": {"continuationToken": token, "FileStatus": list(entries)}})


def about(name: str = "", size: int = 0, *, folder: bool = False) -> Reply:
    return Reply(200, {"FileStatus": status(name, size, folder=folder)})


class Tree:
    """A small account: folder -> entries, listed in pages; ``special`` answers come first."""

    def __init__(self, folders: dict[str, list[dict[str, object]]], page_size: int = 4000) -> None:
        self.folders = folders
        self.page_size = page_size
        self.special: dict[tuple[str, str, str], Reply] = {}

    def __call__(self, asked: Asked) -> Reply:
        folder = "/" + asked.path.removeprefix("/webhdfs/v1").strip("/")
        operation, after = asked.query["op"], asked.query.get("listAfter", "")
        if (operation, folder, after) in self.special:
            return self.special[operation, folder, after]
        if folder not in self.folders:
            return MISSING
        if operation == "GETFILESTATUS":
            return about(folder=True)
        left = [entry for entry in self.folders[folder] if str(entry["pathSuffix"]) > after]
        given = left[: self.page_size]
        # As recorded: a page that is full has a token, also when nothing follows.
        full = len(given) == self.page_size
        return page(*given, token=given[-1]["pathSuffix"] if full else "")


def gen1(server, waits=None, **options) -> WebHdfsClient:
    return WebHdfsClient(client_of(server.url, waits, **options), ROOT, threads=3)


def test_a_page_has_its_entries_and_where_the_next_one_begins(server):
    server.answers = [page(status("B", 5), status("a", folder=True), token="a")]

    found = gen1(server).list_page("/landing", after="A", size=2)

    assert found == Page(
        (
            Status(name="B", is_folder=False, size_bytes=5, modified_ms=7),
            Status(name="a", is_folder=True, size_bytes=0, modified_ms=7),
        ),
        "a",
    )
    assert server.asked[0].query == {
        "op": "LISTSTATUS",
        "api-version": "2018-09-01",
        "listSize": "2",
        "listAfter": "A",
    }


def test_every_file_below_a_folder_is_listed_over_pages_and_levels(server):
    server.answers = Tree(
        {
            "/landing": [
                status("a", folder=True),
                status("b.ss", 1),
                status("c.ss", 2),
                status("z", folder=True),
            ],
            "/landing/a": [status(f"{n:02}.ss", n) for n in range(6)],
            "/landing/z": [status("deep", folder=True)],
            "/landing/z/deep": [status("x.ss", 9, modified=1517358206081)],
        },
        page_size=2,
    )

    found = sorted(gen1(server).walk(f"{ROOT}/landing/"), key=lambda file: file.path)

    assert found == [
        *(FileEntry(7, f"{ROOT}/landing/a/{n:02}.ss", n) for n in range(6)),
        FileEntry(7, f"{ROOT}/landing/b.ss", 1),
        FileEntry(7, f"{ROOT}/landing/c.ss", 2),
        FileEntry(1517358206081, f"{ROOT}/landing/z/deep/x.ss", 9),
    ]


def test_the_root_of_the_account_is_listed(server):
    server.answers = Tree({"/": [status("a.ss"), status("b", folder=True)], "/b": [status("c.ss")]})

    assert sorted(file.path for file in gen1(server).walk(ROOT)) == [f"{ROOT}/a.ss", f"{ROOT}/b/c.ss"]


def test_a_file_without_a_modification_time_is_listed_without_one(server):
    entry = status("a.ss", 3)
    del entry["modificationTime"]
    server.answers = Tree({"/landing": [entry]})

    assert list(gen1(server).walk("/landing")) == [FileEntry(0, f"{ROOT}/landing/a.ss", 3)]


def tree_of_two() -> Tree:
    return Tree(
        {
            "/landing": [status("a.ss"), status("b", folder=True)],
            "/landing/b": [status("c.ss"), status("d.ss"), status("e.ss")],
        },
        page_size=2,
    )


@pytest.mark.parametrize(
    "where", [("/landing", ""), ("/landing", "b"), ("/landing/b", ""), ("/landing/b", "d.ss")]
)
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (DENIED, SourceRefusedError),
        (Reply(500), SourceUnreadableError),
        (Reply(400, remote("IllegalArgumentException")), SourceUnreadableError),
        (Reply(404, b"a proxy's page"), SourceUnreadableError),
        (DROP, SourceUnreadableError),
        (Reply(200, b"<html>"), SourceUnreadableError),
        (Reply(200, {"FileStatuses": {"FileStatus": []}}), SourceUnreadableError),
    ],
)
def test_a_page_that_cannot_be_read_stops_the_listing_wherever_it_is(server, where, reply, error):
    tree = tree_of_two()
    tree.special["LISTSTATUS", *where] = reply
    server.answers = tree

    with pytest.raises(error) as caught:
        list(gen1(server).walk("/landing"))

    assert type(caught.value) is error
    assert caught.value.what.startswith(f"Could not list the folder {ROOT}{where[0]}")


def test_a_folder_that_is_deleted_during_the_listing_is_not_there(server):
    tree = tree_of_two()
    del tree.folders["/landing/b"]
    server.answers = tree

    assert [file.path for file in gen1(server).walk("/landing")] == [f"{ROOT}/landing/a.ss"]


@pytest.mark.parametrize(
    ("root", "error"),
    [
        (MISSING, SourceUnreadableError),
        (about("x.ss"), SourceUnreadableError),
        (DENIED, SourceRefusedError),
        (Reply(500), SourceUnreadableError),
    ],
)
def test_a_folder_that_is_gone_with_its_root_is_not_an_empty_one(server, root, error):
    tree = tree_of_two()
    del tree.folders["/landing/b"]
    tree.special["GETFILESTATUS", "/landing", ""] = root
    server.answers = tree

    with pytest.raises(error):
        list(gen1(server).walk("/landing"))


@pytest.mark.parametrize(
    "entry",
    [
        status("../up"),
        status(".."),
        status("a/b"),
        {**status("a"), "type": "SYMLINK"},
        {**status("a"), "length": -1},
        {**status("a"), "length": "5"},
        {**status("a"), "pathSuffix": None},
        "a",
    ],
)
def test_an_entry_that_cannot_be_understood_stops_the_listing(server, entry):
    server.answers = lambda _: page(entry)

    with pytest.raises(SourceUnreadableError):
        list(gen1(server).walk("/landing"))


def test_pages_that_do_not_lead_on_are_an_error(server):
    for client, repeated in (
        (gen1(server), page(status("a.ss"), token="a.ss")),
        (hdfs(server), batch(status("a.ss"), left=1)),
    ):
        server.answers = lambda _, repeated=repeated: repeated
        with pytest.raises(SourceUnreadableError, match="the next page is the page that was read"):
            list(client.walk("/landing"))


def test_names_of_any_kind_arrive_as_they_are(server):
    server.answers = [about()]
    name = "/ü/12,+3#456?.txt%41&a=b c"

    gen1(server).get_status(ROOT + "//" + name + "/")

    assert server.asked[0].path == "/webhdfs/v1" + name
    assert "12%2C%2B3%23456%3F.txt%2541%26a%3Db%20c" in server.asked[0].raw


@pytest.mark.parametrize(
    "path", ["adl://other.azuredatalakestore.net/a", "a/b", "abfss://c@a/b", "/a/../b", "/./a", f"{ROOT}x/a"]
)
def test_a_path_that_is_relative_or_of_another_account_is_not_sent(server, path):
    with pytest.raises(InputError):
        gen1(server).get_status(path)

    assert server.asked == []


def test_a_status_is_none_only_if_there_is_nothing(server):
    server.answers = [about(size=5), MISSING]
    client = gen1(server)

    assert client.get_status("/a") == Status(name="", is_folder=False, size_bytes=5, modified_ms=7)
    assert client.get_status("/a") is None


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (DENIED, ServiceAuthError),
        (Reply(404, b""), ServiceRefusedError),
        (Reply(404, remote("RuntimeException")), ServiceRefusedError),
        (Reply(503), ServiceError),
        (Reply(200, {}), ServiceProtocolError),
    ],
)
def test_a_status_that_cannot_be_read_is_an_error_and_never_none(server, reply, error):
    server.answers = lambda _: reply

    with pytest.raises(error):
        gen1(server).get_status("/a")
    with pytest.raises(error):
        gen1(server).read("/a")


def test_a_file_is_read_to_its_end_also_in_short_parts(server):
    server.answers = [about(size=5), Reply(200, b"abc"), Reply(200, b"de")]

    assert gen1(server).read("/a") == b"abcde"
    assert [(a.query["op"], a.query.get("offset"), a.query.get("length")) for a in server.asked] == [
        ("GETFILESTATUS", None, None),
        ("OPEN", "0", "5"),
        ("OPEN", "3", "2"),
    ]


def test_a_range_of_a_file_is_read(server):
    server.answers = [about(size=10), Reply(200, b"cde"), about(size=10), about(size=10), Reply(200, b"ij")]
    client = gen1(server)

    assert client.read("/a", offset=2, length=3) == b"cde"
    assert client.read("/a", offset=10) == b""
    assert client.read("/a", offset=8, length=100) == b"ij"


@pytest.mark.parametrize("reply", [Reply(200, b""), Reply(200, b"abcdef"), Reply(416), Reply(403)])
def test_a_file_that_does_not_give_all_its_bytes_is_an_error(server, reply):
    server.answers = [about(size=5), reply]

    with pytest.raises(ServiceError):
        gen1(server).read("/a")


def test_a_file_that_does_not_exist_is_none(server):
    server.answers = [MISSING, about(size=5), MISSING]

    assert gen1(server).read("/a") is None
    assert gen1(server).read("/a") is None


def test_folders_are_made_and_files_renamed_and_deleted(server):
    server.answers = [TRUE, TRUE, FALSE, TRUE, FALSE, MISSING]
    client = gen1(server)

    client.mkdirs("/a/b")
    assert client.rename("/a/x", "/a/y") is True
    assert client.rename("/a/x", "/a/y") is False
    client.delete("/a", recursive=True)
    client.delete("/a")
    client.delete("/a")

    assert [(a.method, a.query["op"]) for a in server.asked] == [
        ("PUT", "MKDIRS"),
        ("PUT", "RENAME"),
        ("PUT", "RENAME"),
        ("DELETE", "DELETE"),
        ("DELETE", "DELETE"),
        ("DELETE", "DELETE"),
    ]
    assert server.asked[1].query["destination"] == "/a/y"
    assert [a.query.get("recursive") for a in server.asked[3:]] == ["true", "false", "false"]
    assert all(a.headers["content-length"] == "0" for a in server.asked)


def test_a_rename_without_an_answer_is_not_repeated(server):
    server.answers = [DROP]

    with pytest.raises(ServiceOutcomeUnknownError):
        gen1(server).rename("/a", "/b")

    assert len(server.asked) == 1


def test_refusals_of_changes_are_errors(server):
    server.answers = lambda _: Reply(403, remote("IOException"))
    client = gen1(server)

    for call in (lambda: client.delete("/a"), lambda: client.mkdirs("/a"), lambda: client.rename("/a", "/b")):
        with pytest.raises(ServiceRefusedError):
            call()


def test_a_folder_that_the_service_did_not_make_is_an_error(server):
    server.answers = [FALSE, Reply(200, {"boolean": "true"})]

    for _ in range(2):
        with pytest.raises(ServiceProtocolError):
            gen1(server).mkdirs("/a")


@pytest.mark.parametrize("path", ["/", "", ROOT, ROOT + "//"])
def test_the_root_of_an_account_is_never_deleted(server, path):
    with pytest.raises(InputError, match="not the root of the account"):
        gen1(server).delete(path, recursive=True)

    assert server.asked == []


# ---- control files ----------------------------------------------------------------------------------


def test_names_are_those_of_the_files_of_all_pages(server):
    server.answers = [
        page(status("b"), status("a", folder=True), token="b"),
        page(status("c")),
        MISSING,
        page(status("", 5)),
    ]
    client = gen1(server)

    assert client.names("/log") == ["b", "c"]
    assert client.names("/nothing") == []
    with pytest.raises(SourceUnreadableError, match="it is a file, not a folder"):
        client.names("/log/b")


def test_a_folder_that_goes_while_its_names_are_listed_is_not_an_empty_one(server):
    server.answers = [page(status("a"), token="a"), MISSING]

    with pytest.raises(SourceNotFoundError):
        gen1(server).names("/log")


def read_whole(server) -> bytes | None:
    client = gen1(server)
    return client.read_whole("/a", client.get_status("/a"))


def test_a_small_file_comes_in_one_answer_that_would_show_a_longer_one(server):
    server.answers = [about(size=2), Reply(200, b"ab")]

    assert read_whole(server) == b"ab"
    assert server.asked[1].query["length"] == "3"


@pytest.mark.parametrize("came", [b"abc", b"a", b""])
def test_a_file_that_is_replaced_while_it_is_read_is_read_again(server, came):
    server.answers = [about(size=2), Reply(200, came), about(size=3), Reply(200, b"new")]

    assert read_whole(server) == b"new"


def test_a_large_file_is_one_version_if_its_status_stays(server):
    size = 4_194_304
    old, new = Reply(200, b"o" * size), Reply(200, b"n" * size)
    first, second = [Reply(200, {"FileStatus": status("", size + 1, modified=at)}) for at in (1, 2)]
    tail_old, tail_new = Reply(200, b"o"), Reply(200, b"n")
    server.answers = [first, old, tail_new, second, new, tail_new, second]

    assert read_whole(server) == b"n" * (size + 1)
    server.answers = [first, old, tail_old, first]
    assert read_whole(server) == b"o" * (size + 1)


def test_a_file_that_is_deleted_while_it_is_read_is_not_there(server):
    server.answers = [about(size=5), MISSING, MISSING, MISSING]

    assert read_whole(server) is None


def test_a_file_that_does_not_give_all_its_bytes_is_not_read_for_ever(server):
    server.answers = [about(size=5), Reply(200, b""), about(size=5)]

    with pytest.raises(ServiceProtocolError):
        read_whole(server)


def test_a_file_that_changes_all_the_time_is_an_error(server):
    sizes = iter(range(2, 100))
    server.answers = lambda asked: (
        Reply(200, b"a") if asked.query["op"] == "OPEN" else about(size=next(sizes))
    )

    with pytest.raises(ServiceError, match="it was replaced 5 times in the meantime"):
        read_whole(server)


def test_a_large_file_is_written_in_parts(server):
    server.answers = [Reply(201), Reply(200), Reply(200)]
    data = b"a" * 4_194_304 + b"b" * 4_194_304 + b"c"

    gen1(server).upload("/a", data)

    assert [(a.method, a.query["op"], a.query.get("offset"), a.body[:1]) for a in server.asked] == [
        ("PUT", "CREATE", None, b"a"),
        ("POST", "APPEND", "4194304", b"b"),
        ("POST", "APPEND", "8388608", b"c"),
    ]
    assert b"".join(a.body for a in server.asked) == data


def test_a_part_without_an_answer_begins_the_file_again(server, waits):
    server.answers = [Reply(201), DROP, Reply(201), Reply(200)]

    gen1(server, waits).upload("/a", b"a" * 4_194_305)

    assert [a.query["op"] for a in server.asked] == ["CREATE", "APPEND", "CREATE", "APPEND"]
    assert waits == [1.0]


def test_a_rename_may_replace(server):
    server.answers = [TRUE, Reply(200), FALSE, MISSING]
    client = gen1(server)

    assert [client.rename("/a", "/b", overwrite=True) for _ in range(4)] == [True, True, False, False]
    assert server.asked[0].query["renameoptions"] == "OVERWRITE"


def test_a_rename_onto_a_name_in_use_is_not_done_however_the_service_says_so(server):
    server.answers = [FALSE, EXISTS]
    client = gen1(server)

    assert [client.rename("/a", "/b") for _ in range(2)] == [False, False]
    assert "renameoptions" not in server.asked[0].query


# ---- plain HDFS -------------------------------------------------------------------------------------

CLUSTER = "namenode:9870"


def hdfs(server, waits=None, **options) -> WebHdfsClient:
    repeating = Repeating(sleep=waits or [].append)
    http = HttpClient(server.url, options.pop("tokens", None), user="me", repeating=repeating, **options)
    return WebHdfsClient(http, f"webhdfs://{CLUSTER}", threads=3)


@pytest.fixture
def datanode():
    with serving() as running:
        yield running


def batch(*entries: dict[str, object], left: object = 0) -> Reply:
    statuses = {"FileStatuses": {"FileStatus": list(entries)}}
    return Reply(200, {"DirectoryListing": {"partialListing": statuses, "remainingEntries": left}})


def test_data_go_to_the_datanode_and_nowhere_else(server, datanode):
    there = f"{datanode.url}/webhdfs/v1/a%20b?op=CREATE&user.name=me&namenoderpcaddress=namenode:8020"
    server.answers = [Reply(307, headers={"Location": there})]
    datanode.answers = [Reply(201)]

    hdfs(server).upload("/a b", b"data")

    assert server.asked[0].query == {"op": "CREATE", "overwrite": "true", "user.name": "me"}
    assert server.asked[0].body == b""
    assert datanode.asked[0].body == b"data"
    assert datanode.asked[0].raw == there.removeprefix(datanode.url)
    assert datanode.asked[0].headers["content-type"] == "application/octet-stream"


def test_a_large_file_of_a_cluster_is_one_request(server, datanode):
    server.answers = [Reply(307, headers={"Location": f"{datanode.url}/webhdfs/v1/a?op=CREATE"})]
    datanode.answers = [Reply(201)]

    hdfs(server).upload("/a", b"a" * 10_000_000)

    assert len(datanode.asked[0].body) == 10_000_000


def test_a_service_that_does_not_ask_for_the_data_has_not_taken_them(server):
    server.answers = lambda _: Reply(201)

    with pytest.raises(ServiceProtocolError, match="did not ask for the data"):
        hdfs(server).upload("/a", b"data")


def test_a_file_is_read_from_the_datanode(server, datanode):
    server.answers = [
        about(size=5),
        Reply(307, headers={"Location": f"{datanode.url}/webhdfs/v1/a?op=OPEN&offset=0&length=5"}),
    ]
    datanode.answers = [Reply(200, b"abcde")]

    assert hdfs(server).read("/a") == b"abcde"
    assert "read" not in server.asked[1].query
    assert datanode.asked[0].headers.get("authorization") is None


def test_a_datanode_that_does_not_answer_is_asked_again_by_way_of_the_namenode(server, datanode):
    away = Reply(307, headers={"Location": f"{datanode.url}/webhdfs/v1/a?op=OPEN"})
    server.answers = [about(size=2), away, away]
    datanode.answers = [DROP, Reply(200, b"ab")]

    assert hdfs(server).read("/a") == b"ab"


@pytest.mark.parametrize("location", ["ftp://datanode/a", "//user@datanode/a", "http://user:pw@datanode/a"])
def test_a_redirect_to_what_is_no_datanode_is_not_followed(server, location):
    server.answers = [Reply(307, headers={"Location": location})]

    with pytest.raises(ServiceProtocolError, match="leads to another host"):
        hdfs(server).upload("/a", b"data")


def test_a_cluster_without_secrets_is_reached_without_tls():
    assert repr(HttpClient("http://namenode:9870", None, user="me"))


def test_a_folder_of_a_cluster_is_listed_in_pages(server):
    pages = {
        ("/webhdfs/v1/landing", None): batch(status("a", 1), status("b", folder=True), left=1),
        ("/webhdfs/v1/landing", "b"): batch(status("c", 3)),
        ("/webhdfs/v1/landing/b", None): batch(),
    }
    server.answers = lambda asked: pages[asked.path, asked.query.get("startAfter")]

    assert sorted(hdfs(server).walk(f"webhdfs://{CLUSTER}/landing")) == [
        FileEntry(7, f"webhdfs://{CLUSTER}/landing/a", 1),
        FileEntry(7, f"webhdfs://{CLUSTER}/landing/c", 3),
    ]
    asked = [(a.path.removeprefix("/webhdfs/v1"), a.query.get("startAfter")) for a in server.asked]
    assert sorted(asked, key=str) == [("/landing", "b"), ("/landing", None), ("/landing/b", None)]
    assert {a.query["op"] for a in server.asked} == {"LISTSTATUS_BATCH"}


def test_an_older_cluster_lists_a_folder_at_once(server):
    unknown = Reply(400, remote("IllegalArgumentException"))
    whole = Reply(200, {"FileStatuses": {"FileStatus": [status("a", 1), status("b", 2)]}})
    server.answers = [unknown, whole, whole]
    client = hdfs(server)

    assert client.names("/landing") == ["a", "b"]
    assert client.names("/landing") == ["a", "b"]
    assert [a.query["op"] for a in server.asked] == ["LISTSTATUS_BATCH", "LISTSTATUS", "LISTSTATUS"]


@pytest.mark.parametrize(
    "reply",
    [
        batch(status("a"), left=None),
        batch(left=1),
        Reply(200, {"DirectoryListing": {"remainingEntries": 0}}),
        Reply(200, {"FileStatuses": {"FileStatus": []}}),
    ],
)
def test_a_page_of_a_cluster_that_is_not_whole_stops_the_listing(server, reply):
    server.answers = lambda _: reply

    with pytest.raises(SourceUnreadableError):
        list(hdfs(server).walk("/landing"))
