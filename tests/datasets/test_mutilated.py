"""A file with one thing wrong in it is an error, or it is put aside and the others are in the table."""

from __future__ import annotations

import pytest

from tests.datasets import lab, mutilations, size

pytestmark = [pytest.mark.spark, pytest.mark.compiled]


WHATS = mutilations.ALL if size.LARGE else mutilations.ALL[::2]
"""In a small run every second one: ``tests/spark/reading_cases.py`` has literal files of most of them."""


@pytest.mark.slow
@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("seed", size.seeds(0.025))
def test_a_file_with_one_thing_wrong_is_refused(spark, tmp_path, what, seed):
    source = lab.Lab(spark, tmp_path, mutilations.spoilt(what, seed))

    if (seed + len(what)) % 4 == 0:
        lab.check_not_committed(source, what)
    else:
        lab.check_refused(source, what)


@pytest.mark.loads
@pytest.mark.parametrize("what", mutilations.ALL)
@pytest.mark.parametrize("seed", size.seeds(0.01))
def test_of_a_file_with_one_thing_wrong_what_is_bad_is_put_aside(spark, tmp_path, what, seed):
    lab.check_put_aside(lab.Lab(spark, tmp_path, mutilations.spoilt(what, seed + 1_000)))
