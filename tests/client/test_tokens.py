"""A token is acquired once, by one thread, and replaced before it expires."""

from __future__ import annotations

import threading

import pytest

from airflow_provider_scope.exceptions import ServiceAuthError
from airflow_provider_scope.stores.calls import Token, Tokens


class Source:
    def __init__(self, lifetime: float) -> None:
        self.lifetime = lifetime
        self.now = 1000.0
        self.count = 0

    def acquire(self) -> Token:
        self.count += 1
        return Token(f"token-{self.count}", self.now + self.lifetime)

    def tokens(self) -> Tokens:
        return Tokens(self.acquire, clock=lambda: self.now)


def test_a_token_is_kept_until_five_minutes_before_it_expires():
    source = Source(lifetime=3600)
    tokens = source.tokens()

    first = tokens.get()
    source.now += 3300
    still = tokens.get()
    source.now += 1
    then = tokens.get()

    assert (first, still, then) == ("token-1", "token-1", "token-2")


def test_a_token_that_was_refused_is_replaced_once_for_all_who_used_it():
    source = Source(lifetime=3600)
    tokens = source.tokens()
    used = tokens.get()

    tokens.reject(used)
    assert tokens.get() == "token-2"
    tokens.reject(used)  # another thread's request, sent before

    assert tokens.get() == "token-2"


def test_many_threads_acquire_one_token():
    source = Source(lifetime=3600)
    start, could_enter = threading.Barrier(8), []

    def acquire() -> Token:
        could_enter.append(tokens._lock.acquire(blocking=False))
        return source.acquire()

    tokens = Tokens(acquire, clock=lambda: source.now)
    results = []

    def ask() -> None:
        start.wait()
        results.append(tokens.get())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == ["token-1"] * 8
    assert could_enter == [False]


def test_a_failure_is_not_kept():
    results = iter([ServiceAuthError("no"), Token("token-1", 5000.0)])

    def acquire() -> Token:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    tokens = Tokens(acquire, clock=lambda: 0.0)

    with pytest.raises(ServiceAuthError):
        tokens.get()
    assert tokens.get() == "token-1"


def test_a_token_does_not_show_its_value():
    assert repr(Token("s3cr3t", 1.0)) == "Token(expires_at=1.0)"
