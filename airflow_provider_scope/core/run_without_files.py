"""What becomes of a run that finds no file to load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import EmptyRefreshError, SourceEmptyError

if TYPE_CHECKING:
    from airflow_provider_scope.core.report import RunReport


def check_found(report: RunReport, table: str, *, fail_on_empty: bool, would_empty: bool) -> None:
    """Refuse a run without files where that is an error.

    :param report: What the listing held.
    :param fail_on_empty: The user says that there are always files.
    :param would_empty: The run would replace rows by none.
    :raises SourceEmptyError: No file that is there matches the patterns, and there have to be some.
    :raises EmptyRefreshError: A refresh has nothing to load.
    """
    if fail_on_empty and not report.matched:
        raise SourceEmptyError(
            f"The source holds nothing to load (fail_on_empty=True): {report.why_nothing()}.",
            kept="the table and all records; nothing was written",
            do="check `roots`, `format` and `patterns`; if the files come later, the next try takes them",
        )
    if would_empty:
        raise EmptyRefreshError(
            f"A full refresh of {table} found no file to load: {report.why_nothing()}.",
            kept="the table as it is; nothing was logged",
            do="check `roots` and `patterns`. To empty the table on purpose, delete its rows",
        )
