"""Options of Spark's reader that would leave files or rows out, or read them as something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import validation

if TYPE_CHECKING:
    from collections.abc import Mapping


class Refused(NamedTuple):
    """Why an option is not taken."""

    does: str
    """What it would do."""
    instead: str
    """What to write instead."""
    harmless: str | None = None
    """The one value that is taken: ours."""


_SKIPS_FILES = "a file would count as loaded without its rows being in the table"
REFUSED = {
    "pathGlobFilter": Refused(_SKIPS_FILES, "use `patterns` to choose which files count"),
    "modifiedBefore": Refused(_SKIPS_FILES, 'use mode="data_interval" with `window_end`'),
    "modifiedAfter": Refused(_SKIPS_FILES, "use `starting_timestamp`"),
    "recursiveFileLookup": Refused(
        "files that are not in the batch could be read",
        "leave it out: the provider lists the folders",
        "false",
    ),
    "ignoreCorruptFiles": Refused(
        "the rest of a file that cannot be read would be left out",
        "leave it out; repair the file, or abandon its batch with `airflow scope abandon`",
        "false",
    ),
    "ignoreMissingFiles": Refused(
        _SKIPS_FILES,
        "leave it out; `airflow scope abandon` abandons the batch of a file that is missing",
        "false",
    ),
    "mode": Refused(
        "rows that do not parse would vanish, or become NULLs",
        "leave it out; declare a column that may hold anything as string, and use try_cast in the SELECT",
        "FAILFAST",
    ),
    "columnNameOfCorruptRecord": Refused(
        "rows that do not parse would be loaded",
        "with format='text' each line is a row, which the SELECT can take apart",
    ),
    "enforceSchema": Refused(
        "the header of a CSV file would be ignored, and columns taken by position",
        "leave it out; leave `header` out too for files that have none",
        "false",
    ),
    "columnPruning": Refused(
        "a row that is too short or too long would pass if the SELECT leaves a column out",
        "leave it out",
        "false",
    ),
    "locale": Refused(
        "numbers and names of months are read as English ones, whatever this option says",
        "declare the column as string, and convert it in the SELECT",
        "en-US",
    ),
    "basePath": Refused(
        "names of folders would become columns, whose types are guessed in each batch",
        "compute them from source_file_uri in `sql`",
    ),
    "__globPaths__": Refused("other files than those of the batch would be read", "leave it out"),
    "path": Refused("other files than those of the batch would be read", "name the folders in `roots`"),
    "paths": Refused("other files than those of the batch would be read", "name the folders in `roots`"),
    "schema": Refused("nothing: it is not an option of a reader", "declare `columns`"),
}
"""Option -> why it is refused, in any letter case: Spark does not tell options apart by case."""
_BY_LOWER_CASE = {name.lower(): refused for name, refused in REFUSED.items()}


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that would make the rows others than those of the files.

    :raises InputError: One of ``REFUSED`` is given, or an option is given in two spellings.
    """
    seen: dict[str, str] = {}
    for name, value in options.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise validation.bad(
                "options",
                name,
                f"each option once: {other} and {name} are the same option to Spark",
                "leave one of the two out",
            )
        refused = _BY_LOWER_CASE.get(name.lower())
        if refused is None or (refused.harmless and _is(value, refused.harmless)):
            continue
        raise InputError(
            f"options[{name!r}]={value!r} is refused: {refused.does}.",
            kept="everything; nothing was read or written",
            do=refused.instead,
        )


def _is(value: Any, harmless: str) -> bool:
    """Tell whether a value is the harmless one; a template is told when the task runs."""
    return validation.is_deferred(value) or str(value).strip().lower() == harmless.lower()
