"""Protocol case 50: clients that others wrote agree on names, lengths and existence.

What they agree on is the directory itself: each expectation is literal, and each client has to meet it.
Clients that cannot send a token send ``user.name``.
"""

from __future__ import annotations

import pytest

from tests.emulator import clients


@pytest.fixture
def emulator(request, start_emulator):
    return start_emulator(tls=request.getfixturevalue("kind") == "azure")


@pytest.fixture
def root(emulator):
    return emulator.account.root


@pytest.fixture(params=["fsspec", "azure"])
def kind(request):
    return request.param


@pytest.fixture
def client(kind, emulator, monkeypatch):
    if kind == "azure":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(emulator.certificate))
    return {"fsspec": clients.Fsspec, "azure": clients.AzureSdk}[kind](emulator.port)


def test_case_50_on_29_an_empty_folder_is_there_and_holds_nothing(client, root):
    (root / "d").mkdir()
    assert client.names("/d") == {}
    assert client.exists("/d")
    assert client.length("/d") is None


def test_case_50_on_30_and_31_a_listing_has_every_name_in_the_order_of_the_service(client, root):
    for name in ("a", "B", "c1", "é"):
        (root / name).write_bytes(name.encode())
    (root / "c").mkdir()
    expected = {"B": 1, "a": 1, "c": None, "c1": 2, "é": 2}
    assert client.names("/") == expected
    assert list(client.names("/")) == list(expected)


def test_case_50_on_31_only_a_client_that_pages_sees_what_is_above_the_cap(client, kind, emulator, root):
    emulator.set(list_cap=2)
    for name in "abcde":
        (root / name).write_bytes(b"")
    assert list(client.names("/")) == (list("abcde") if kind == "azure" else list("ab"))


def test_case_50_on_33_a_missing_path_is_missing_and_a_forbidden_one_is_not(client, emulator, root):
    (root / "secret").mkdir()
    emulator.set(denied_paths=["/secret"])
    with pytest.raises(client.Missing, match="none"):
        client.names("/none")
    with pytest.raises(client.Missing, match="none/f"):
        client.length("/none/f")
    assert not client.exists("/none")
    with pytest.raises(client.Refused):
        client.names("/secret")


def test_case_50_on_34_and_39_a_file_has_its_length_and_its_bytes(client, root):
    (root / "d").mkdir()
    (root / "d/f").write_bytes(b"0123456789")
    assert client.length("/d/f") == 10
    assert client.read("/d/f", 0, 10) == b"0123456789"
    assert client.read("/d/f", 3, 7) == b"3456"


def test_case_50_on_35_and_36_what_is_written_is_there(client, root):
    client.write("/a/b/f", b"hello")
    assert (root / "a/b/f").read_bytes() == b"hello"
    assert client.names("/a/b") == {"f": 5}


def test_case_50_on_37_and_38_what_is_appended_is_there(client, kind, root):
    if kind == "fsspec":
        pytest.skip("fsspec cannot append")
    client.write("/a/b/f", b"hello")
    client.append("/a/b/f", b" world")
    assert (root / "a/b/f").read_bytes() == b"hello world"
    assert client.names("/a/b") == {"f": 11}
    assert client.length("/a/b/f") == 11


def test_case_50_on_40_and_42_folders_come_and_go(client, root):
    for _ in range(2):
        client.mkdirs("/a/b/c")
    assert client.names("/a") == {"b": None}
    assert client.exists("/a/b/c")
    with pytest.raises(client.Refused):
        client.delete("/a", recursive=False)
    assert client.exists("/a/b/c")
    client.delete("/a", recursive=True)
    assert not client.exists("/a")
    assert not (root / "a").exists()


def test_case_50_on_41_a_file_is_under_its_new_name_alone(client, root):
    (root / "d").mkdir()
    (root / "f").write_bytes(b"12")
    client.rename("/f", "/d/g")
    assert client.names("/") == {"d": None}
    assert client.names("/d") == {"g": 2}
    assert (client.exists("/f"), client.exists("/d/g")) == (False, True)


@pytest.mark.parametrize("name", ["a b", "a%20b", "ä€😀", "12,+3#4&56.txt"])
def test_case_50_on_44_names_come_back_as_they_were(client, root, name):
    client.write(f"/d/{name}", b"1")
    assert (root / "d" / name).read_bytes() == b"1"
    assert client.names("/d") == {name: 1}
    assert client.exists(f"/d/{name}")
    assert client.read(f"/d/{name}", 0, 1) == b"1"
