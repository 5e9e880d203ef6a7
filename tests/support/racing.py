"""One of several processes that create the same control files at the same time."""

from __future__ import annotations

import json
import sys

from tests.support.connecting import connect

FILLING = 20_000


def content(who: int, name: str) -> bytes:
    """What a racer writes: several pages long, different for each, and recognisable when cut."""
    return f"{who}|{name}|{str(who) * FILLING}|end".encode()


def writer(data: bytes, name: str) -> int:
    """Find out who wrote this.

    :raises AssertionError: It is not the whole content of any racer.
    """
    who = int(data.split(b"|", 1)[0])
    assert data == content(who, name), f"{name} holds {len(data)} bytes that nobody wrote in this form"
    return who


def race(uri: str, address: str, who: int, names: list[str]) -> list[str]:
    """Create all names, and give those that were won."""
    storage = connect(uri, address)
    return [
        name
        for name in names
        if storage.put_if_absent(f"{uri}/{name}", content(who, name)) == content(who, name)
    ]


if __name__ == "__main__":
    location, service, number, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    sys.stdin.readline()
    print(json.dumps(race(location, service, number, [f"{n:020}" for n in range(count)])))  # noqa: T201
