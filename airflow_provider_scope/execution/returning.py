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

_KEPT = "everything; nothing was written"


def counting(log: CheckpointLog, found: Sequence[Aside]) -> list[Aside]:
    """Give what of the quarantine still counts.

    Left out are batches that are not in the table (or were abandoned), batches of before the last full
    refresh, and files that were given back since.
    """
    committed = log.committed()
    start = (log.offset(committed[-1]).refresh_start or 0) if committed else 0
    batches = {aside.batch for aside in found}
    done = {seq for seq in committed if seq in batches and not log.commit(seq).abandoned}
    done |= set(log.vacuumed().quarantined)
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
    check(log, files, found)
    while True:
        number = len(log.returns())
        mine = Return(number=number, after=log.logged()[-1], files=tuple(files))
        there = log.put_return(mine)
        if there == mine:
            return there


def check(log: CheckpointLog, files: Sequence[str], found: Sequence[Aside]) -> None:
    """Refuse to give back what is not there to give back.

    :raises InputError: A file has rows in the table, was given back already, or was never put aside.
    """
    whole = {aside.file for aside in found if aside.whole}
    parts = {aside.file: aside.records for aside in found if not aside.whole}
    for file in files:
        if file in whole:
            continue
        if file in parts:
            count = parts[file]
            were = "1 record of it was" if count == 1 else f"{count:,} records of it were"
            raise InputError(
                f"The file {file} cannot be given back: {were} quarantined, but the file was not. Its "
                "other rows are in the table, and would be doubled.",
                kept=_KEPT,
                do="write the repaired records into a new file, and let the next run load it; or, if the "
                "declaration was wrong and not the file, run once with full_refresh=True",
            )
        after = log.returned().get(file)
        if after is not None:
            raise _given_back_before(log, file, after)
        raise InputError(
            f"The file {file} is not in the quarantine.",
            kept=_KEPT,
            do="name one that `airflow scope quarantine` shows, as it shows it",
        )


def _given_back_before(log: CheckpointLog, file: str, after: int) -> InputError:
    """Say what became of a file that was given back.

    :param after: The newest batch at that time.
    """
    committed = set(log.committed())
    since, do = "no batch has included it since", "run the task: it loads the file if it is there"
    if after + 1 < log.vacuumed_below():
        since = "the records of the batches since then were purged"
        do = "run the task: it loads the file if no batch has loaded it since"
    for seq in reversed([seq for seq in log.logged() if seq > after]):
        if all(one.path != file for one in log.offset(seq).slice.audited):
            continue
        if seq not in committed:
            since = f"batch {seq} has included it since, but is not in the table yet"
            do = "run the task: it runs that batch first"
            break
        if not log.commit(seq).abandoned:
            since, do = f"batch {seq} has loaded it since", "nothing: the file is loaded"
            break
    return InputError(
        f"The file {file} was given back already, after batch {after}; {since}.", kept=_KEPT, do=do
    )
