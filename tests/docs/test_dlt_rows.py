"""Each behaviour of dlt has a test that shows ours, or a place in docs/writes.md or docs/cursor.md: why not.

The numbers are those of a list of dlt's behaviours: 1 write dispositions, 2 delete-insert, 3 hard_delete,
4 upsert, 5 scd2, 6 cursors, 7 the boundary, 8 ranges, 9 missing values and lag, 10 intervals.
"""

from __future__ import annotations

import ast

import pytest

from tests.docs.pages import DOCS, ROOT, headings, rows, section

PAGE = DOCS / "writes.md"
MERGE, SCD2 = "tests/spark/test_merge_rules.py", "tests/spark/test_scd2.py"
RACES = "tests/spark/test_merge_races.py"
SHOWN = "tests/docs/test_writes_page.py::test_the_rows_of_the_page_are_those_of_the_table"
NAMES = "tests/unit/test_write_columns.py"
SPECS = "tests/unit/test_write_specs.py"

ROWS: dict[str, tuple[str, ...]] = {
    "1.1 append": (f"{SHOWN}[Append-0]", "Append"),
    "1.2 empty load": (
        f"{RACES}::test_a_merge_that_changes_nothing_is_a_commit_with_the_number",
        f"{SCD2}::test_an_empty_extract_is_ignored_unless_it_is_to_retire",
        "the first load of a table without rows makes no table",
    ),
    "1.3 replace": (f"{SHOWN}[Replace-0]",),
    "1.4 replace, empty load": ("an empty `replace` empties the table",),
    "1.5 columns": (f"{MERGE}::test_a_column_that_a_batch_lacks_is_null_in_its_rows", "Columns"),
    "1.6 switching": (
        f"{MERGE}::test_every_copy_of_a_key_that_an_append_left_goes_and_nested_data_come_with_their_row",
    ),
    "1.7 dispatch": ("a function of the row may name its table",),
    "2.1 order of work": (f"{SHOWN}[Delete-insert-0]",),
    "2.2 primary_key": (
        f"{MERGE}::test_keys_are_exact_and_compared_column_by_column",
        f"{SHOWN}[Delete-insert-0]",
    ),
    "2.3 duplicates in a load": (f"{MERGE}::test_without_an_order_always_the_same_row_counts",),
    "2.4 key values": (f"{MERGE}::test_keys_are_exact_and_compared_column_by_column",),
    "2.5 null keys": (
        f"{MERGE}::test_a_key_that_is_null_refuses_the_batch",
        f"{MERGE}::test_a_name_that_is_no_column_is_refused_though_no_key_comes_twice",
        f"{NAMES}::test_a_column_that_the_rows_do_not_have_is_refused",
    ),
    "2.6 merge_key only": (
        f"{MERGE}::test_a_group_is_replaced_by_fewer_rows_of_which_duplicates_stay_and_marked_ones_go",
    ),
    "2.7 merge_key, reload": (
        f"{SHOWN}[Delete-insert-1]",
        f"{RACES}::test_a_merge_that_changes_nothing_is_a_commit_with_the_number",
    ),
    "2.8 both keys": (
        f"{SHOWN}[Delete-insert-2]",
        f"{MERGE}::test_a_row_that_loses_still_deletes_by_its_merge_key",
    ),
    "2.9 no keys": (f"{MERGE}::test_without_keys_rows_are_added_but_for_those_that_are_marked",),
    "2.10 dedup_sort": (
        f"{MERGE}::test_null_loses_in_both_orders",
        f"{SPECS}::test_what_a_merge_cannot_do_is_refused",
    ),
    "2.11 dedup_sort, null": (f"{MERGE}::test_null_loses_in_both_orders",),
    "2.12 load order": (f"{MERGE}::test_one_of_equal_rows_counts_and_the_last_load_wins",),
    "2.13 children": (
        f"{MERGE}::test_every_copy_of_a_key_that_an_append_left_goes_and_nested_data_come_with_their_row",
        "lists become child tables",
    ),
    "3.1 bool column": (f"{MERGE}::test_what_marks_a_row[boolean]",),
    "3.2 other types": (f"{MERGE}::test_what_marks_a_row[text]",),
    "3.3 matching": (f"{MERGE}::test_a_marked_row_deletes_by_either_key_and_needs_no_other_value",),
    "3.4 absent key": (f"{MERGE}::test_a_mark_for_a_key_that_is_not_there_does_nothing",),
    "3.5 with dedup_sort": (f"{MERGE}::test_the_order_picks_the_row_before_its_mark_is_looked_at",),
    "3.6 delete and insert of a key, unsorted": (
        f"{MERGE}::test_without_an_order_always_the_same_row_counts",
        "Duplicates in a batch",
    ),
    "3.7 merge key, mixed flags": (
        f"{MERGE}::test_a_group_is_replaced_by_fewer_rows_of_which_duplicates_stay_and_marked_ones_go",
    ),
    "3.8 two flag columns": ("a second column for `hard_delete` or `dedup_sort` is refused",),
    "3.9 children": ("lists become child tables",),
    "3.10 scd2, append, replace": ("hard_delete",),
    "4.1 upsert": (
        f"{SHOWN}[Upsert-0]",
        f"{MERGE}::test_a_column_that_a_batch_lacks_is_null_in_its_rows",
    ),
    "4.2 keys": (f"{SPECS}::test_what_a_merge_cannot_do_is_refused", "`merge_key` beside upsert is ignored"),
    "4.3 duplicates in a load": (
        f"{MERGE}::test_duplicates_of_which_none_counts_are_refused",
        "duplicates in an upsert fail in one case and are all inserted in another",
    ),
    "4.4 hard_delete": (f"{SHOWN}[Upsert-0]",),
    "4.5 hard_delete, absent key": (
        f"{MERGE}::test_a_mark_for_a_key_that_is_not_there_does_nothing",
        "an upsert stores marked rows of unknown keys",
    ),
    "4.6 children": ("lists become child tables",),
    "4.7 null key": (f"{MERGE}::test_a_key_that_is_null_refuses_the_batch",),
    "5.1 retire and insert": (f"{SHOWN}[Scd2-0]",),
    "5.2 full extract": (
        f"{SHOWN}[Scd2-0]",
        f"{SCD2}::test_equal_rows_are_one_version_and_the_order_of_rows_and_columns_is_no_change",
    ),
    "5.3 boundary": (f"{SHOWN}[Scd2-0]",),
    "5.4 reinsert": (f"{SCD2}::test_a_version_that_comes_back_is_a_new_one",),
    "5.5 empty extract": (
        f"{SCD2}::test_an_empty_extract_is_ignored_unless_it_is_to_retire",
        "an empty extract of scd2 retires nothing",
    ),
    "5.6 duplicates in an extract": (
        f"{SCD2}::test_equal_rows_are_one_version_and_the_order_of_rows_and_columns_is_no_change",
        "equal rows of an extract are several active versions",
    ),
    "5.7 row hash": (
        f"{SCD2}::test_the_hash_sees_values_and_not_how_they_are_written",
        f"{SCD2}::test_a_column_that_is_missing_is_the_same_as_null",
        "the row hash is over the text of the source",
    ),
    "5.8 out-of-order extracts": (
        f"{SCD2}::test_a_version_that_comes_back_is_a_new_one",
        "One batch is one extract",
    ),
    "5.9 merge_key, natural key": (
        f"{SHOWN}[Scd2-1]",
        f"{SCD2}::test_a_version_that_comes_back_is_a_new_one",
    ),
    "5.10 merge_key, partition": (
        f"{SHOWN}[Scd2-2]",
        f"{SCD2}::test_a_row_that_moves_stays_active_in_its_old_partition_until_that_is_extracted",
    ),
    "5.11 compound merge_key": (
        f"{SCD2}::test_compound_merge_keys_are_compared_column_by_column",
        "compound merge keys of scd2 are joined to one text",
    ),
    "5.12 merge_key, schema memory": (
        f"{SCD2}::test_null_in_a_row_version_is_refused",
        "hints stay in the schema after they are left out",
    ),
    "5.13 validity_column_names": (
        f"{SCD2}::test_names_and_the_end_of_active_versions_may_be_others_but_stay_so",
        "tests/unit/test_write_rules.py::test_the_columns_of_versions_are_added_unless_the_rows_have_them",
        f"{NAMES}::test_a_declared_column_with_a_name_of_the_versions_is_refused",
    ),
    "5.14 active_record_timestamp": (
        f"{SCD2}::test_names_and_the_end_of_active_versions_may_be_others_but_stay_so",
        f"{SCD2}::test_versions_that_are_active_with_null_are_not_left_active_beside_a_timestamp",
        f"{SPECS}::test_an_instant_is_one_of_utc_or_refused",
    ),
    "5.15 boundary_timestamp": (f"{SCD2}::test_a_boundary_is_used_as_it_is_given",),
    "5.16 row_version_column_name": (
        f"{SHOWN}[Scd2-3]",
        f"{SCD2}::test_a_row_version_may_be_a_number_and_stands_for_equal_rows_alone",
        f"{SCD2}::test_null_in_a_row_version_is_refused",
    ),
    "5.17 children": (
        f"{SCD2}::test_the_hash_sees_values_and_not_how_they_are_written",
        "lists become child tables",
    ),
    "5.18 children, own row version": (f"{SHOWN}[Scd2-3]", "lists become child tables"),
    "5.19 link to the root": ("lists become child tables",),
    "5.20 primary_key, dedup_sort": ("`primary_key`, `dedup_sort` and `hard_delete` are ignored by scd2",),
    "5.21 full refresh": (
        f"{SCD2}::test_a_refresh_begins_the_history_anew_with_windows",
        "a full refresh of scd2 has no windows",
    ),
}

LOADS, MODEL = "tests/spark/test_cursor.py", "tests/spark/test_cursor_model.py"
VALUES, USER = "tests/unit/test_cursor_values.py", "tests/airflow/test_cursor_loads.py"
RANDOM = f"{MODEL}::test_the_rows_of_each_load_are_those_of_the_model"
CURSOR = DOCS / "cursor.md"

CURSOR_ROWS: dict[str, tuple[str, ...]] = {
    "6.1 filter": (RANDOM, f"{LOADS}::test_each_load_takes_what_is_new"),
    "6.2 first run": (
        RANDOM,
        f"{LOADS}::test_a_full_refresh_begins_at_the_initial_value_and_replace_does_so_each_time",
    ),
    "6.3 state": (RANDOM, f"{LOADS}::test_each_load_takes_what_is_new"),
    "6.4 zero, negatives": (RANDOM, f"{VALUES}::test_a_bound_is_a_value_of_the_column"),
    "6.5 what the source sees": ("What a load does",),
    "6.6 changed initial value": (f"{VALUES}::test_lag_never_goes_below_the_initial_value",),
    "6.7 cursor renamed": (
        f"{LOADS}::test_a_source_that_was_created_again_and_another_column_are_refused",
        "Another column as the cursor is refused until a full refresh",
    ),
    "6.8 failure": (
        f"{LOADS}::test_a_batch_that_died_reads_the_version_that_it_was_logged_with",
        "The state and the rows are one commit",
    ),
    "6.9 new machine": (f"{LOADS}::test_the_state_of_a_batch_that_is_not_recorded_is_not_lost",),
    "6.10 merge and cursor": (
        f"{LOADS}::test_merge_takes_rows_that_changed_and_another_cursor_value_brings_them",
    ),
    "6.11 replace and cursor": (
        f"{LOADS}::test_a_full_refresh_begins_at_the_initial_value_and_replace_does_so_each_time",
    ),
    "6.12 zone handling": (
        f"{VALUES}::test_a_bound_of_another_type_is_refused_and_both_types_are_named",
        "a time without zone for a column with one",
    ),
    "6.13 types": (
        f"{VALUES}::test_a_bound_of_another_type_is_refused_and_both_types_are_named",
        f"{VALUES}::test_numbers_may_change_their_type_and_others_may_not",
    ),
    "6.14 text cursors": (RANDOM, "compared by code point"),
    "6.15 decimals, doubles, 64 bits": (RANDOM,),
    "6.16 NaN": ("NaN and infinite values are missing values",),
    "6.17 paths": (f"{LOADS}::test_a_nested_cursor_a_select_before_it_and_one_behind_it",),
    "6.18 configuration": (
        f"{USER}::test_the_example_of_a_cursor_loads_what_changed_and_says_which_row_has_no_value",
    ),
    "7.1 key": (RANDOM,),
    "7.2 what is dropped": (
        f"{LOADS}::test_a_row_with_the_last_value_that_comes_later_is_loaded_and_no_other_twice",
        "A row that changed at the boundary is loaded",
    ),
    "7.3 not inside a load": (RANDOM, "Duplicates inside a load stay"),
    "7.4 memory": (RANDOM, f"{MODEL}::test_a_boundary_that_is_too_large_for_the_state_is_as_exact"),
    "7.5 off": (RANDOM, "Nothing is compared"),
    "7.6 key column absent": ("With no such column the load is refused",),
    "7.7 row hash": ("by a hash of the values",),
    "7.8 Arrow input": (RANDOM,),
    "8.1 max, min": (RANDOM,),
    "8.2 custom function": (
        "no functions of your own",
        "tests/spark/test_cursor_groups.py::test_each_load_takes_what_a_cursor_of_each_group_would",
    ),
    "8.3 end_value": (f"{LOADS}::test_a_range_is_loaded_once_and_leaves_the_state_alone",),
    "8.4 chaining": (
        f"{LOADS}::test_a_range_is_loaded_once_and_leaves_the_state_alone",
        "A range that was loaded is not appended again",
    ),
    "8.5 bad ranges": (f"{VALUES}::test_what_a_cursor_cannot_be_is_refused_when_the_dag_is_parsed",),
    "8.6 open and closed ends": (
        f"{MODEL}::test_ranges_whose_ends_fit_take_each_row_once",
        f"{MODEL}::test_an_open_start_takes_only_rows_beyond_it",
    ),
    "8.7 row_order asc": (f"{LOADS}::test_files_that_cannot_hold_new_rows_are_not_read",),
    "8.8 row_order desc": ("`row_order` | none",),
    "8.9 wrong order declared": ("`row_order` | none",),
    "8.10 flags": ("`row_order` | none",),
    "9.1 raise (default)": (
        RANDOM,
        f"{USER}::test_the_example_of_a_cursor_loads_what_changed_and_says_which_row_has_no_value",
    ),
    "9.2 include": (RANDOM,),
    "9.3 exclude": (RANDOM,),
    "9.4 row order": ("`row_order` | none",),
    "9.5 transforms": (f"{LOADS}::test_a_nested_cursor_a_select_before_it_and_one_behind_it",),
    "9.6 lag, units": (
        f"{VALUES}::test_lag_is_taken_from_the_last_value",
        f"{VALUES}::test_lag_on_text_is_refused",
    ),
    "9.7 lag, window": (f"{VALUES}::test_lag_never_goes_below_the_initial_value", RANDOM),
    "9.8 lag, state": (RANDOM, "The last\nvalue never goes back"),
    "9.9 lag, dedup": (RANDOM, "With `lag`, rows that were loaded are left out"),
    "9.10 lag, switched off": ("The state is neither read nor\nchanged",),
    "9.11 lag, zone-aware": (RANDOM, f"{VALUES}::test_lag_is_taken_from_the_last_value"),
    "9.12 full refresh": (
        f"{LOADS}::test_a_full_refresh_begins_at_the_initial_value_and_replace_does_so_each_time",
    ),
    "9.13 refresh modes": ('`refresh="drop_data"`',),
    "9.14 custom state": (
        "tests/spark/test_load.py::test_rows_are_merged_and_counted_and_the_state_is_committed_with_them",
    ),
    "10.1 opt in": ("`allow_external_schedulers=True`",),
    "10.2 mapping": (
        f"{LOADS}::test_intervals_load_their_rows_alone_and_an_incremental_load_goes_on_behind_them",
    ),
    "10.3 reruns": (
        f"{LOADS}::test_intervals_load_their_rows_alone_and_an_incremental_load_goes_on_behind_them",
        "a range that was loaded is not loaded again",
    ),
    "10.4 manual run": ("Intervals",),
    "10.5 end none or in the future": ("Intervals",),
    "10.6 no scheduler": ("Intervals",),
    "10.7 explicit initial and end value": (f"{VALUES}::test_what_does_not_go_with_a_cursor_is_refused",),
    "10.8 cursor type": (f"{VALUES}::test_an_interval_becomes_values_of_the_column",),
    "10.9 conversion": (f"{VALUES}::test_an_interval_becomes_values_of_the_column",),
    "10.10 zone-less rows": (f"{VALUES}::test_an_interval_becomes_values_of_the_column",),
    "10.11 interval inside one day, date cursor": ("an interval inside of one day is empty",),
}
SHOWS = sorted({place for places in ROWS.values() for place in places})
CURSOR_SHOWS = sorted({place for places in CURSOR_ROWS.values() for place in places})


def test_every_behaviour_has_a_place() -> None:
    numbers = [name.split()[0] for name in ROWS]

    assert numbers == [
        f"{part}.{n}"
        for part, count in ((1, 7), (2, 13), (3, 10), (4, 7), (5, 21))
        for n in range(1, count + 1)
    ]


def test_every_behaviour_of_a_cursor_has_a_place() -> None:
    numbers = [name.split()[0] for name in CURSOR_ROWS]

    assert numbers == [
        f"{part}.{n}"
        for part, count in ((6, 18), (7, 8), (8, 10), (9, 14), (10, 11))
        for n in range(1, count + 1)
    ]


@pytest.mark.parametrize("place", [place for place in (*SHOWS, *CURSOR_SHOWS) if "::" in place])
def test_a_test_that_is_named_exists(place: str) -> None:
    path, name = place.split("::")
    tree = ast.parse((ROOT / path).read_text())

    assert name.split("[")[0] in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("place", [place for place in SHOWS if "::" not in place])
def test_a_reason_that_is_named_is_in_the_page(place: str) -> None:
    assert place in headings(PAGE) or place in {row[0] for row in rows(section(PAGE, "## Coming from dlt"))}


@pytest.mark.parametrize("place", [place for place in CURSOR_SHOWS if "::" not in place])
def test_a_reason_that_is_named_is_in_the_page_of_cursors(place: str) -> None:
    assert place in CURSOR.read_text()
