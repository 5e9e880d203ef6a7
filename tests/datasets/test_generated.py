"""What is in the files is what is in the table, for schemas, values, names and settings that nobody chose."""

from __future__ import annotations

import random

import pytest

from tests.datasets import generator, lab, size

pytestmark = [pytest.mark.spark, pytest.mark.compiled]


SHARES = {"csv": 0.4, "json": 0.4, "parquet": 0.3, "orc": 0.15, "avro": 0.3, "text": 0.15}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "seed"), [(k, seed) for k, share in SHARES.items() for seed in size.seeds(share)]
)
def test_every_value_of_every_file_is_read_once_with_its_type(spark, tmp_path, kind, seed):
    lab.check_read(lab.Lab(spark, tmp_path, generator.case(seed, kind=kind)))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [*((None, seed) for seed in size.seeds(0.2)), ("avro", 1)])
def test_every_value_of_every_batch_is_in_the_table_once(spark, tmp_path, kind, seed):
    case = generator.case(seed, kind=kind)
    rng = random.Random(seed)

    lab.check_commit(lab.Lab(spark, tmp_path, case), lab.cut(case, rng, rng.choice((1, 2, 4))))
