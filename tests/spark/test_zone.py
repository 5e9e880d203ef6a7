"""Times without a zone are the same wherever Java runs, or they are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark import session
from tests.spark.reading_cases import CLOCK, INSTANT, WALL, file_of, in_another_zone

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.compiled]


@pytest.fixture
def far_away(spark: Any) -> Iterator[None]:
    """Let Java be in another zone where rows are read, as on a machine of a cluster."""
    zones = spark._jvm.java.util.TimeZone
    zones.setDefault(zones.getTimeZone("Asia/Kolkata"))
    yield
    session.make_exact(spark)


def land(bench: Any, name: str, content: bytes) -> Any:
    path = bench.folder / "landing" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return bench.entry(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [file_of("orc", CLOCK), file_of("orc", INSTANT)], ids=["clock", "instant"]
)
@pytest.mark.usefixtures("far_away")
def test_a_machine_in_another_zone_reads_no_time(bench: Any, content: bytes) -> None:
    error = bench.failure(bench.batch(0, land(bench, "a.orc", content)), format="orc")

    assert isinstance(error, InputError)
    assert "Asia/Kolkata" in error.what
    assert not DeltaTable.is_deltatable(str(bench.table))


def test_each_task_is_checked_and_every_row_comes_through(spark: Any) -> None:
    assert session.in_utc(spark.range(0, 10_000, 1, 3)).count() == 10_000


@pytest.mark.usefixtures("far_away")
def test_the_application_sets_its_own_zone(bench: Any) -> None:
    files = [land(bench, f"{number}.orc", file_of("orc", CLOCK)) for number in range(2)]

    bench.run_plan(bench.batch(0, *files), format="orc", columns={"v": "timestamp_ntz"})

    assert bench.rows() == [{"v": WALL}] * 2


def test_clocks_of_other_zones_are_read_beside_those_of_utc(bench: Any) -> None:
    files = [
        land(bench, "a.orc", file_of("orc", CLOCK)),
        land(bench, "b.orc", in_another_zone(file_of("orc", CLOCK))),
    ]

    bench.run_plan(bench.batch(0, *files), format="orc")

    assert bench.rows() == [{"v": WALL}] * 2
