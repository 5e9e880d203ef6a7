"""Which files of a listing are results, which are loaded already, and how the rest is cut into batches."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from copy import deepcopy
from dataclasses import dataclass
from heapq import nsmallest
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_scope.exceptions import InputError, SourceFileChangedError
from airflow_provider_scope.protocol.recovery import load_again
from airflow_provider_scope.protocol.seen import (
    NAMED_AT_MOST,
    History,
    Reason,
    Status,
    Tally,
    in_parts,
    is_changed,
)
from airflow_provider_scope.stores.kinds import place_of
from airflow_provider_scope.values import (
    OTHERS_NAMED,
    TEXT_FORMATS,
    FileEntry,
    Position,
    and_others,
    base_name,
    counted,
    encodable,
    is_hidden,
    is_packed,
    is_readable,
    iso_time,
    position,
    printable,
    some_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from airflow_provider_scope.sources.files.spec import FileSource
    from airflow_provider_scope.values import Window


SHOWN_OF_UNMATCHED = 3
"""Names that a report shows if no file matches the patterns."""

_MAY_BE_CHANGES: frozenset[Reason] = frozenset({"too young", "zero length", "no modification time"})
"""Reasons to leave out a file that may have been loaded with other content before."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The files of one listing that are results, oldest first, and what was left out of it."""

    files: tuple[FileEntry, ...]
    unfit: Tally
    """Files that were left out, whatever was loaded."""
    held: tuple[tuple[Reason, FileEntry], ...]
    """Files that are left out as they are now: if they were loaded, they have changed since."""
    listed: int
    """Files that the listing held, with those that match no pattern."""
    matched: int
    """Files whose name matches a pattern."""
    newest: FileEntry | None
    unmatched: tuple[str, ...] = ()
    """Some names of files, if none matches a pattern."""
    tables: frozenset[str] = frozenset()
    """Delta tables among the folders that were listed, by their logs."""

    @property
    def left_out(self) -> Tally:
        """What was left out if no file was loaded before."""
        tally = deepcopy(self.unfit)
        for reason, file in self.held:
            tally.hold(reason, file)
        return tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What discovery needs to know of a source; times in milliseconds since the epoch."""

    patterns: tuple[str, ...]
    young_after_ms: int
    """Files modified after this time are held back: they may still be written."""
    starting_at_ms: int | None = None
    window: Window | None = None
    """The interval whose files are taken; None takes those of all times."""
    late_files: Literal["ingest", "skip"] = "ingest"
    on_changed_file: Literal["ignore", "fail", "reload"] = "ignore"
    is_text: bool = False
    """The files are text, compressed or not, as their names say."""

    @classmethod
    def of(cls, spec: FileSource, now_ms: int, window: Window | None = None) -> Rules:
        """Return the rules of a run that begins now.

        :param window: The interval whose files are taken.
        """
        return cls(
            patterns=spec.name_patterns,
            young_after_ms=now_ms - int(spec.safety_buffer_seconds * 1000),
            starting_at_ms=spec.begins_ms,
            window=window,
            late_files=spec.late_files,
            on_changed_file=spec.on_changed_file,
            is_text=spec.format in TEXT_FORMATS,
        )


def candidates(listing: Iterable[FileEntry], rules: Rules, roots: Sequence[str] = ()) -> Candidates:
    """Pick the results out of one listing and sort them into the order of ingestion.

    Patterns are searched in the file's name. A structured stream ``X.ss`` with a folder ``X`` beside
    it counts that folder's files into its size, and files in the folder are never results.
    A file that appears twice (roots that overlap) counts once.

    :param roots: The folders that were listed; a hidden folder below them holds no results.
    """
    everything = {file.path: file for file in listing}
    selection = _Selection(rules, roots, _Streams(everything))
    files = (file for part in in_parts(everything.values()) for file in selection.take(part))
    # Files compare by their position; a key would take a million tuples more.
    kept = sorted(map(selection.streams.whole, files))
    return selection.candidates(kept, len(everything), map(base_name, everything))


def new_candidates(
    listing: Iterable[FileEntry], rules: Rules, roots: Sequence[str], loaded: History
) -> Candidates | None:
    """Do what ``candidates`` does, and leave out the files that are loaded and have not changed.

    They are left out during the listing: the memory of a run does not grow with the number of loaded files.

    :param roots: The folders that are listed; none lies below another.
    :return: None if there is a structured stream: what belongs to it, only a whole listing tells.
    """
    selection = _Selection(rules, roots, _Streams({}))
    kept, names = dict[str, FileEntry](), list[str]()
    listed = 0
    for part in in_parts(listing):
        if any(file.path.endswith(".ss") for file in part):
            return None
        listed += len(part)
        kept.update((file.path, file) for file in loaded.without_same(selection.take(part)))
        if not selection.matched:
            names = _first_names([*names, *(base_name(file.path) for file in part)])
    return selection.candidates(sorted(kept.values()), listed, names)


class _Selection:
    """Takes the files of a listing part by part: results, and those left out, with the reason."""

    def __init__(self, rules: Rules, roots: Sequence[str], streams: _Streams) -> None:
        self.rules = rules
        self.roots = roots
        self.streams = streams
        self.matches = _search(rules.patterns)
        self.unfit, self.held = Tally(), list[tuple[Reason, FileEntry]]()
        self.newest: FileEntry | None = None
        self.matched = 0
        self.tables = set[str]()

    def take(self, part: Sequence[FileEntry]) -> list[FileEntry]:
        """Return the files that hold rows for this run; count those that match and do not."""
        log = "/_delta_log/"
        self.tables |= {file.path.partition(log)[0] for file in part if log in file.path}
        matches, is_part = self.matches, self.streams.is_part
        matching = [file for file in part if matches(base_name(file.path)) and not is_part(file.path)]
        if matching:
            self.matched += len(matching)
            newest = max(matching)
            self.newest = newest if self.newest is None else max(self.newest, newest)
        return [file for file in matching if self._holds_rows(file)]

    def _holds_rows(self, file: FileEntry) -> bool:
        reason = _unfit(file, self.streams, self.rules, self.roots)
        if reason is None:
            return True
        if reason == "outside the interval":
            # Of another time: the run of that interval names what is odd about it.
            self.unfit.add_unnamed(reason, 1)
        elif reason in _MAY_BE_CHANGES:
            self.held.append((reason, self.streams.whole(file)))
        else:
            self.unfit.add(reason, file.path)
        return False

    def candidates(self, kept: Sequence[FileEntry], listed: int, names: Iterable[str]) -> Candidates:
        """Return what became of the listing.

        :param kept: The results, oldest first.
        :param listed: How many files the listing held.
        :param names: Names of files, for when none matches.
        """
        unmatched = () if self.matched else tuple(map(printable, _first_names(names)))
        held, tables = tuple(self.held), frozenset(self.tables)
        return Candidates(tuple(kept), self.unfit, held, listed, self.matched, self.newest, unmatched, tables)


def _search(patterns: Sequence[str]) -> Callable[[str], object]:
    searches = [re.compile(pattern).search for pattern in patterns]
    # As a rule there is one, and a million names.
    return searches[0] if len(searches) == 1 else lambda name: any(search(name) for search in searches)


def _first_names(names: Iterable[str]) -> list[str]:
    """Return the first names, and those that Spark itself would not read last."""
    return nsmallest(SHOWN_OF_UNMATCHED, names, key=lambda name: (is_hidden(name), name))


def _in_hidden_folder(path: str, roots: Sequence[str]) -> bool:
    """Return whether a writer's own folder, such as ``_temporary``, lies between a file and its root.

    Its files move out of it when they are complete, and would be loaded twice, once under each path.
    """
    if "/_" not in path and "/." not in path:
        return False
    inside = [path[len(root) :] for root in roots if path.startswith(root.rstrip("/") + "/")]
    return bool(inside) and all(any(map(is_hidden, place.split("/")[:-1])) for place in inside)


def _unfit(file: FileEntry, streams: _Streams, rules: Rules, roots: Sequence[str]) -> Reason | None:
    name = base_name(file.path)
    if rules.window and file.modified_ms > 0 and file.modified_ms not in rules.window:
        return "outside the interval"
    if _in_hidden_folder(file.path, roots):
        return "hidden folder"
    if is_hidden(name):
        return "hidden name"
    if not is_readable(file.path):
        return "unreadable name"
    if rules.is_text and is_packed(name):
        return "archive or unreadable compression"
    if file.modified_ms <= 0:
        return "no modification time"
    if streams.size(file) == 0:
        return "zero length"
    if rules.starting_at_ms is not None and file.modified_ms < rules.starting_at_ms:
        return "before starting_timestamp"
    if file.modified_ms > rules.young_after_ms:
        return "too young"
    return None


class _Streams:
    """Structured streams with a folder beside them: ``X.ss`` and ``X/``."""

    def __init__(self, everything: Mapping[str, FileEntry]) -> None:
        self.folders = {path[:-3] + "/" for path in everything if path.endswith(".ss")}
        paths = sorted(everything) if self.folders else []
        self.paths = paths
        self.sums = [0, *accumulate(everything[path].size_bytes for path in paths)]

    def is_part(self, path: str) -> bool:
        if not self.folders:
            return False
        cut = path.rfind("/") + 1
        while cut > 0:
            if path[:cut] in self.folders:
                return True
            cut = path.rfind("/", 0, cut - 1) + 1
        return False

    def whole(self, file: FileEntry) -> FileEntry:
        """Return a file with its folder's bytes; the manifest's sum says nothing of those."""
        if not self.folders or not file.path.endswith(".ss"):
            return file
        return file._replace(size_bytes=self.size(file), content_md5=None)

    def size(self, file: FileEntry) -> int:
        if not self.folders or not file.path.endswith(".ss"):
            return file.size_bytes
        folder = file.path[:-3] + "/"
        first = bisect_left(self.paths, folder)
        last = bisect_right(self.paths, folder + "\U0010ffff")
        return file.size_bytes + self.sums[last] - self.sums[first]


def unseen(
    files: Sequence[FileEntry],
    seen: Mapping[str, Status],
    rules: Rules,
    highest: Position | None,
    left_out: Tally,
    *,
    waiting: Collection[str] = (),
    held: Iterable[tuple[Reason, FileEntry]] = (),
) -> list[FileEntry]:
    """Return the candidates that the log does not hold yet, in the order of ingestion.

    Seen-ness is exact, by path: a late file, a renamed one or one with exactly the newest file's time
    needs no special case.

    :param seen: All files since ``refresh_start``; not looked at with ``late_files="skip"``.
    :param highest: The largest position since ``refresh_start``, the limit of ``late_files="skip"``.
    :param left_out: Files that are left out here are counted into it, and those that are held.
    :param waiting: Paths of files that are logged, and still to be loaded.
    :param held: Files that are no candidates as they are now; see ``Candidates``.
    :raises SourceFileChangedError: Loaded files have changed, and ``on_changed_file="fail"``.
    """
    if rules.late_files == "skip":
        for reason, file in held:
            left_out.hold(reason, file)
        if highest is None:
            return list(files)
        cut = bisect_right(files, highest, key=position)
        # Without history a late file cannot be told from a loaded one: they are counted together.
        left_out.add_unnamed("loaded before, or late", cut)
        return list(files[cut:])
    new: list[FileEntry] = []
    changed: list[FileEntry] = []
    reloads = rules.on_changed_file == "reload"
    for file in files:
        before = seen.get(file.path)
        if before is None:
            new.append(file)
        elif is_changed(file, before):
            (new if reloads and file.modified_ms >= before[0] else changed).append(file)
    changed += _changed_of(held, seen, left_out, reloads=reloads)
    # What becomes of a file that is still to be loaded, its batch says.
    loaded = [file for file in changed if file.path not in waiting]
    if loaded and rules.on_changed_file == "fail":
        raise _changed(loaded, seen)
    for file in changed:
        is_logged = file.path in waiting
        left_out.add("changed after it was logged" if is_logged else "changed after it was loaded", file.path)
    return new


def _changed_of(
    held: Iterable[tuple[Reason, FileEntry]], seen: Mapping[str, Status], left_out: Tally, *, reloads: bool
) -> Iterator[FileEntry]:
    """Return the held files that were loaded before and have changed, and count the others as left out.

    :param reloads: One that is too young is loaded again later.
    """
    for reason, file in held:
        before = seen.get(file.path)
        if before is None or not is_changed(file, before) or (reloads and reason == "too young"):
            left_out.hold(reason, file)
        else:
            yield file


def _same_content(
    files: Iterable[FileEntry], loaded: Iterable[tuple[str, Status]]
) -> Iterator[tuple[str, FileEntry | None]]:
    """Pair the path of each loaded file with the file that has its name, size and time elsewhere, if any."""
    # By time as well as by name: every file of a folder for each day may have the same name.
    alike: dict[tuple[str, int], list[FileEntry]] = {}
    for file in files:
        alike.setdefault((base_name(file.path), file.modified_ms), []).append(file)
    for path, before in loaded:
        name, at = base_name(path), before[0]
        namesakes = (*alike.get((name, at), ()), *alike.get((name, at + 1), ()))
        yield path, next((file for file in namesakes if not is_changed(file, before)), None)


def check_names(
    new: Sequence[FileEntry],
    elsewhere: Iterable[tuple[str, Status]],
    roots: Sequence[str],
    checkpoint: str = "",
) -> None:
    """Refuse files that were loaded under another name, from outside of the roots that are named now.

    A root that is reached through a link, another mount, scheme or namenode has other paths, and all of its
    files would be loaded again. Their names, sizes and times are still the same; those of another folder
    with files of its own are not.

    :param new: Files that would be loaded.
    :param elsewhere: Files that were, and lie below none of the roots.
    :param checkpoint: The folder of the log, which tells whether it is an interval's.
    :raises InputError: A new file has the size and time of one that was loaded from elsewhere.
    """
    for path, file in _same_content(new, elsewhere) if new else ():
        if file:
            raise InputError(
                f"The file {printable(file.path)} was loaded before under another name: "
                f"{printable(path)} has the same size and time, and is not below any of the current "
                f"roots ({', '.join(roots)}). Its rows would be in the table twice.",
                kept="the table and all records; nothing was written",
                do="name the folder in `roots` as before. To continue with the new name, "
                + load_again(
                    checkpoint,
                    "set starting_timestamp to a time after the loaded files. Or run once with "
                    "full_refresh=True, which loads all files under their new names and replaces all rows",
                ),
            )


def not_loaded_again(
    files: Iterable[FileEntry], loaded: Iterable[tuple[str, Status]], table_version: int | None
) -> str:
    """Say which loaded files a full refresh does not load; empty if it loads all of them.

    A file that was moved, and has its name, size and time as before, is loaded from where it is now.

    :param files: Those that the refresh loads.
    :param loaded: Those whose rows it replaces.
    :param table_version: The version that has their rows; None if there is no table.
    """
    by_path = {file.path: file for file in files}
    total, absent = 0, list[tuple[str, Status]]()
    for path, before in loaded:
        total += 1
        if by_path.pop(path, None) is None:
            absent.append((path, before))
    missing = [path for path, file in _same_content(by_path.values(), absent) if file is None]
    if not missing:
        return ""
    older = (
        ""
        if table_version is None
        else f" Version {table_version} of the table has them until VACUUM deletes its files: read it with "
        f"VERSION AS OF {table_version}, or RESTORE the table to it."
    )
    return (
        f"Loaded files that the source no longer has, or that are left out of it: {len(missing):,} of "
        f"{total:,}. Their rows are not in the new table.{older} The files: "
        f"{some_names(missing, OTHERS_NAMED)}"
    )


def _changed(files: Sequence[FileEntry], seen: Mapping[str, Status]) -> SourceFileChangedError:
    file, *more_files = files
    modified_ms, size_bytes, _ = seen[file.path]
    size = "an unknown number of" if size_bytes is None else f"{size_bytes:,}"
    return SourceFileChangedError(
        f"The file {printable(file.path)} was loaded with {size} bytes, modified at "
        f"{iso_time(modified_ms)}; it now has {file.size_bytes:,} bytes, modified at "
        f'{iso_time(file.modified_ms)} (on_changed_file="fail").'
        f"{and_others([file.path for file in more_files], 'have changed')}",
        kept="everything that was loaded before; no new batch was logged",
        do='put the old content back, or set on_changed_file="ignore" (changes are reported and not '
        'loaded) or "reload" (the new content is loaded too; rows of the old content stay)',
    )


def next_batch(
    files: Sequence[FileEntry], start: int, *, max_files: int | None, max_bytes: int | None
) -> int:
    """Return the index after the last file of the batch that begins at ``start``.

    The first file is always taken, also one that is larger than ``max_bytes`` on its own: it would
    never be ingested otherwise.

    :param files: Files in the order of ingestion.
    :param max_files: Files in a batch at the most; None is no limit.
    :param max_bytes: Sum of ``size_bytes`` at the most; None is no limit.
    """
    stop = len(files) if max_files is None else min(len(files), start + max_files)
    if max_bytes is None:
        return stop
    total = 0
    for index in range(start, stop):
        total += files[index].size_bytes
        if total > max_bytes and index > start:
            return index
    return stop


# ---- what a sensor waits for ----


NAMES_LIMIT_BYTES = 3072
"""JSON of the names in a result: with the rest it stays under the 4 KiB of an XCom."""

_NEVER_TOO_YOUNG = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The files that a sensor waits for; times in milliseconds."""

    patterns: tuple[str, ...]
    min_files: int = 1
    min_bytes: int = 0
    modified_after_ms: int | None = None
    """Only files modified after this time count; since the epoch."""
    stable_for_ms: int = 30_000
    """The newest file that counts is at least this old."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The result of one listing."""

    files: tuple[FileEntry, ...]
    """The files that count, oldest first."""
    is_complete: bool
    text: str
    """What was found and what is missing, for people."""

    def to_xcom(self) -> dict[str, Any]:
        """Return a plain dict that stays under 4 KiB as JSON, whatever the number and length of names."""
        names: list[str] = []
        room = NAMES_LIMIT_BYTES
        for name in [encodable(file.path) for file in self.files[:NAMED_AT_MOST]]:
            room -= len(json.dumps(name)) + 2
            if room < 0:
                break
            names.append(name)
        return {
            "names": names,
            "count": len(self.files),
            "bytes": sum(file.size_bytes for file in self.files),
            "newest": iso_time(self.files[-1].modified_ms) if self.files else None,
        }

    def fingerprint(self) -> str:
        """Return a short text that differs if a file, its time or its size does."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self.files:
            digest.update(f"{file.modified_ms} {file.size_bytes} {encodable(file.path)}\n".encode())
        return digest.hexdigest()


def arrived(
    listing: Iterable[FileEntry],
    requirements: Requirements,
    roots: Sequence[str],
    *,
    now_ms: int,
    loaded: History | None = None,
    not_taken_over: Callable[[Sequence[FileEntry]], Sequence[FileEntry]] | None = None,
) -> Arrival:
    """Return whether a listing holds the required files.

    What counts is what the ingest operator would take: see ``discovery.candidates``. A file that is too
    young still counts, and makes the whole wait go on.

    :param now_ms: The time when the listing began: a file may have been written to during it.
    :param loaded: Files that a pipeline has loaded; they do not count, changed or not.
    :param not_taken_over: Gives those of some files that no other program loaded before the pipeline.
    """
    modified_after_ms = requirements.modified_after_ms
    rules = Rules(
        patterns=requirements.patterns,
        young_after_ms=_NEVER_TOO_YOUNG,
        starting_at_ms=None if modified_after_ms is None else modified_after_ms + 1,
    )
    listed = candidates(listing, rules, roots)
    files = listed.files
    if not_taken_over:
        files = tuple(not_taken_over(files))
    if loaded:
        files = tuple(unseen(files, loaded.find([file.path for file in files]), rules, None, Tally()))
    lacking = _lacking(files, requirements, now_ms)
    loaded_count = len(listed.files) - len(files)
    remarks = [f"{loaded_count:,} loaded before"] if loaded_count else []
    remarks += [f"{count:,} left out: {reason}" for reason, count in sorted(listed.left_out.counts.items())]
    size = sum(file.size_bytes for file in files)
    text = f"{counted(len(files), 'file')} of {counted(size, 'byte')} in {', '.join(roots)}"
    text += f" ({', '.join(remarks)})" if remarks else ""
    return Arrival(files, not lacking, f"{text}; waiting for {', '.join(lacking)}" if lacking else text)


def absent(sentence: str) -> Arrival:
    """Return the result where a folder does not exist yet.

    :param sentence: The sentence about the missing folder.
    """
    return Arrival((), is_complete=False, text=f"{sentence} Waiting for it")


def _lacking(files: Sequence[FileEntry], requirements: Requirements, now_ms: int) -> list[str]:
    lacking = []
    if len(files) < requirements.min_files:
        lacking.append(counted(requirements.min_files, "file"))
    if sum(file.size_bytes for file in files) < requirements.min_bytes:
        lacking.append(counted(requirements.min_bytes, "byte"))
    if files and files[-1].modified_ms > now_ms - requirements.stable_for_ms:
        age = (now_ms - files[-1].modified_ms) / 1000
        lacking.append(
            f"{requirements.stable_for_ms / 1000:g} s without a change, the last was {age:g} s ago"
        )
    return lacking


def check_one_store(roots: tuple[str, ...]) -> None:
    """Refuse roots of which one client cannot list all.

    :raises InputError: As said.
    """
    if len({place_of(root) for root in roots}) > 1:
        raise InputError(
            f"The roots {', '.join(roots)} are on different stores.",
            kept="everything; nothing was read or written",
            do="use one task for each store",
        )
