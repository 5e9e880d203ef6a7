"""What a run asks of any source that a user wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self


class SourceSpec:
    """The base of all sources; what it gives holds for one without folders, such as a database."""

    __slots__ = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that are read: roots of files, or a Delta table."""
        return ()

    @property
    def table_folder(self) -> str | None:
        """The one folder, if it is that of a Delta table."""
        return None

    @property
    def metadata_table(self) -> str | None:
        """The folder of a table that shows the batches to people; None if there is to be none."""
        return None

    @property
    def file_roots(self) -> tuple[str, ...]:
        """The folders in which files are listed."""
        return ()

    @property
    def literal_roots(self) -> tuple[str, ...]:
        """Those that are no templates; none if the names of the files are."""
        return ()

    @property
    def safety_buffer_seconds(self) -> float:
        """How old a file has to be to be loaded."""
        return 0

    @property
    def database(self) -> str | None:
        """The connection of the database that is read; None if none is."""
        return None

    @property
    def connections(self) -> int:
        """How many connections to the database read it at once, as far as that is declared."""
        return 1

    @property
    def begins_ms(self) -> int | None:
        """The time of the oldest rows that are loaded, since the epoch; None if that is not said."""
        return None

    @property
    def begins_by(self) -> str:
        """The field that says so; empty if none does."""
        return ""

    @property
    def declared_columns(self) -> Mapping[str, str] | None:
        """The columns of the source's rows, as far as they are declared."""
        return None

    @property
    def infers_columns(self) -> bool:
        """Whether names and types of the columns are inferred from the first batch."""
        return False

    @property
    def puts_bad_records_aside(self) -> bool:
        """Whether records that cannot be loaded go to the quarantine."""
        return False

    def at(self, root: Callable[[str], str], table: Callable[[str], str]) -> Self:  # noqa: ARG002 - no folder
        """Return it with other names of its folders.

        :param root: Gives the other name of a folder with files.
        :param table: Gives that of a table.
        """
        return self


def is_name(table: str) -> bool:
    """Return whether a table is named as a catalog does, and not by its folder."""
    return not table.startswith("/") and ":/" not in table and "file:" not in table
