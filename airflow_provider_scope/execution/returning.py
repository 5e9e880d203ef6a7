"""Give files back from the quarantine, so that the next run loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.core.discovery import is_returned
from airflow_provider_scope.core.records import Return
from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.table.quarantine import Aside


def counting(log: CheckpointLog, found: Sequence[Aside]) -> list[Aside]:
    """Give what of the quarantine still counts.

    Left out are batches that are not in the table (or were given up), batches of before the last full
    refresh, and files that were given back since.
    """
    committed = log.committed()
    start = (log.offset(committed[-1]).refresh_start or 0) if committed else 0
    batches = {aside.batch for aside in found}
    done = {seq for seq in committed if seq in batches and not log.commit(seq).abandoned}
    returned = log.returned()
    return [
        aside
        for aside in found
        if aside.batch in done
        and aside.batch >= start
        and not (aside.whole and aside.file and is_returned(aside.file, aside.batch, returned))
    ]


def give_back(log: CheckpointLog, files: Sequence[str], found: Sequence[Aside]) -> Return:
    """Record that files count as not loaded.

    :param files: Their URIs.
    :param found: What of the quarantine still counts.
    :raises InputError: One was not put aside as a whole: rows of it are in the table.
    """
    check(files, found)
    while True:
        number = len(log.returns())
        mine = Return(number=number, after=log.logged()[-1], files=tuple(files))
        there = log.put_return(mine)
        if there == mine:
            return there


def check(files: Sequence[str], found: Sequence[Aside]) -> None:
    """Refuse to give back what is not there to give back.

    :raises InputError: As said.
    """
    whole = {aside.file for aside in found if aside.whole}
    parts = {aside.file for aside in found if not aside.whole}
    for file in files:
        if file in whole:
            continue
        if file in parts:
            raise InputError(
                f"The file {file} cannot be given back: records of it were put aside, and not the file, so "
                "that its other rows are in the table.",
                kept="everything; nothing was written",
                do="write the mended records into a new file, and let the next run load it",
            )
        raise InputError(
            f"The file {file} is not in the quarantine.",
            kept="everything; nothing was written",
            do="name one that `airflow scope quarantine` shows, as it shows it",
        )
