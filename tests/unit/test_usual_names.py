"""Which names files of a format have, if the user names no patterns."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import EmptyRefreshError, InputError, SourceEmptyError
from airflow_provider_scope.protocol.report import check_loadable
from airflow_provider_scope.sources.files.discovery import Rules, candidates
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.specs.ingest import ingest_from
from tests.support.values import a_file, a_report, arguments, rules


def source_for(**source):
    engine = {"scope_conn_id": "c"} if source.get("format") in (None, "sstream") else {}
    ingest = ingest_from(arguments(engine=engine, source={"roots": "/in", **source}))
    assert ingest
    return ingest.source


def taken(names, **source):
    results = candidates([a_file(name, 1_000) for name in names], Rules.of(source_for(**source), 10**12))
    return [file.path.rpartition("/")[2] for file in results.files], results


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("csv", ["a.csv", "b.CSV", "c.csv.gz", "d.csv.GZIP", "e.csv.bz2", "f.csv.deflate"], ["g.csv.tmp"]),
        ("csv", ["a.b.csv"], ["csv", "acsv", "a.csv.bak", "a.tsv", "a.csvx", "a.parquet"]),
        ("json", ["a.json", "b.jsonl", "c.ndjson", "d.json.gz", "e.jsonl.bz2"], ["f.json5", "g.csv"]),
        ("text", ["a.txt", "b.txt.gz", "c.text", "d.log"], ["e.md", "f.csv"]),
        ("parquet", ["a.parquet", "b.snappy.parquet", "c.PARQUET"], ["d.parquet.crc", "e.parquet.gz"]),
        ("orc", ["a.orc", "b.zlib.orc"], ["c.orc.gz", "d.parquet"]),
        ("sstream", ["a.ss"], ["b.ss.tmp", "c.parquet"]),
        (None, ["a.ss"], ["b.csv"]),
    ],
)
def test_the_usual_names_of_a_format_count_without_patterns(kind, right, wrong):
    names, results = taken(right + wrong, **({"format": kind} if kind else {}))

    assert names == sorted(right)
    assert (results.listed, results.matched) == (len(right) + len(wrong), len(right))


def test_patterns_that_are_named_are_all_that_counts():
    assert taken(["a.csv", "b.dat"], format="csv", patterns=r"\.dat$")[0] == ["b.dat"]


@pytest.mark.parametrize("kind", ["csv", "json", "text"])
def test_an_archive_of_the_format_is_named_in_the_report(kind):
    end = {"text": "txt"}.get(kind, kind)
    names, results = taken([f"a.{end}.zip", f"b.{end}.zst", f"c.{end}.gz"], format=kind)

    assert names == [f"c.{end}.gz"]
    assert results.left_out.counts == {"archive or unreadable compression": 2}


def test_spark_needs_to_be_told_the_format_when_the_dag_is_parsed():
    with pytest.raises(InputError, match="'sstream' is the default") as caught:
        ingest_from(arguments(source={"roots": "/in"}))

    assert "'csv'" in caught.value.do


def test_three_names_of_files_that_match_nothing_are_kept_and_none_of_spark_s_own():
    listing = [a_file(name, 1_000) for name in ("_SUCCESS", ".a.crc", "c.txt", "b.txt", "e.txt", "d.txt")]

    assert candidates(listing, rules(r"\.csv$")).unmatched == ("b.txt", "c.txt", "d.txt")
    assert candidates(listing[:2], rules(r"\.csv$")).unmatched == (".a.crc", "_SUCCESS")
    assert candidates(listing, rules()).unmatched == ()


# ---- nothing found -----------------------------------------------------------------------------------

MISMATCH = {"listed": 3, "matched": 0, "unmatched": ("b.txt", "c.txt", "d.txt"), "patterns": (r"\.csv$",)}


def test_a_run_whose_patterns_match_no_file_that_is_there_is_told_from_an_empty_folder():
    assert a_report(**MISMATCH).matches_nothing
    assert not a_report(listed=0, matched=0).matches_nothing
    assert not a_report(listed=3, matched=1).matches_nothing


@pytest.mark.parametrize(
    ("report", "settings", "error", "what"),
    [
        (a_report(listed=0, matched=0), {}, None, ""),
        (a_report(listed=0, matched=0), {"fail_on_empty": True}, SourceEmptyError, "holds no file"),
        (a_report(**MISMATCH), {}, None, ""),
        (a_report(**MISMATCH), {"fail_on_empty": True}, SourceEmptyError, "such as b.txt, c.txt, d.txt"),
        (a_report(), {"fail_on_empty": True}, None, ""),
        (a_report(listed=0, matched=0), {"would_empty": True}, EmptyRefreshError, "holds no file"),
    ],
)
def test_what_a_run_without_files_does(report, settings, error, what):
    flags = {"fail_on_empty": False, "would_empty": False, **settings}
    if error is None:
        check_loadable(report, "file:///delta/t", **flags)
        return

    with pytest.raises(error, match=what):
        check_loadable(report, "file:///delta/t", **flags)


@pytest.mark.parametrize(("value", "expected"), [(True, True), ("True", True), ("no", False), (None, False)])
def test_the_switch_may_come_from_a_template(value, expected):
    assert source_for(format="csv", fail_on_empty=value).fail_on_empty is expected
    assert FileSource(roots="/in", fail_on_empty="{{ params.x }}").fail_on_empty == "{{ params.x }}"


def test_a_switch_that_is_none_is_refused():
    with pytest.raises(InputError, match="fail_on_empty='maybe'"):
        FileSource(roots="/in", fail_on_empty="maybe")
