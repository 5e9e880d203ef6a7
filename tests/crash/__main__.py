"""``python -m tests.crash``: all parts, a line each; the last line says what was found in all."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from typing import TYPE_CHECKING

from tests.crash.parts import all_parts, do
from tests.crash.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN = 5
"""Failures of one part that are printed; the others are counted."""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument(
        "--spark",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="kill real runs of real Spark as well (about an hour; needs Java)",
    )
    parser.add_argument("--only", metavar="KIND", help="kill real runs of this kind alone, such as database")
    parser.add_argument(
        "--server", action="store_true", help="kill runs in a Spark that stays, and nothing without a JVM"
    )
    options = parser.parse_args()
    total = Tally() if options.only or options.server else without_jvm()
    if options.spark:
        with server_of_its_own() if options.server else nullcontext():
            total.add(with_spark(options.only))
    say(f"kill points {total.kill_points}, lost {total.lost}, doubled {total.doubled}")
    return int(bool(total.failures or total.lost or total.doubled))


@contextmanager
def server_of_its_own() -> Iterator[None]:
    """Let a Spark that stays run the batches; it ends with the block."""
    from airflow_provider_scope.engines import server
    from tests.crash.spark_world import SERVER

    with tempfile.TemporaryDirectory(prefix="scope-") as folder:
        os.environ |= {SERVER: "auto", "TMPDIR": folder}
        tempfile.tempdir = None  # it is read again
        try:
            yield
        finally:
            for state in server.servers():
                server.end(state, say)


def without_jvm() -> Tally:
    total = Tally()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for finding in pool.map(do, all_parts()):
            say(finding.line)
            show(finding.tally)
            total.add(finding.tally)
    return total


def with_spark(only: str | None = None) -> Tally:
    from tests.crash.spark_kills import all_places, kinds, line

    if only not in (None, *kinds()):
        raise SystemExit(f"--only takes one of {', '.join(kinds())}")

    def report(name: str, tally: Tally, text: str, seconds: float) -> None:
        say(line(name, tally, text, seconds))
        show(tally)

    return all_places(report, only)


def show(tally: Tally) -> None:
    for failure in tally.failures[:SHOWN]:
        say(f"    FAILED {failure}")
    if len(tally.failures) > SHOWN:
        say(f"    FAILED {len(tally.failures) - SHOWN} more")


if __name__ == "__main__":
    sys.exit(main())
