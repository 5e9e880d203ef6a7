"""Each command that a message names is complete: pasted, it does what the message says, and runs go on."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.cli.cli_parser import get_parser
from deltalake import DeltaTable

import airflow_provider_scope
from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    CheckpointCorruptError,
    ScopeProviderError,
    SourceFileChangedError,
    SourceFileGoneError,
    TableAheadOfLogError,
    TableBehindLogError,
    TableGoneError,
    TableRecreatedError,
    TableRestoredError,
    UnknownRowsError,
)
from airflow_provider_scope.protocol.commands import OPTIONS, Address
from airflow_provider_scope.protocol.report import READ
from tests.crash.scenarios import VanishingFile
from tests.crash.world import DeltaWorld
from tests.support.delta_engine import local
from tests.support.faulty_storage import open_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMAND = re.compile(r"`airflow scope ([^`]+)`")
ADDRESS = Address(
    table="/data/my table",
    batch=3,
    task=("loads", "flights"),
    map_index=7,
    checkpoint="/data/checkpoint",
    interval="20130101T000000000Z_20130102T000000000Z",
    storage_conn_id="store",
    engine="scope",
    spark_conn_id="spark",
    scope_conn_id="adla",
    tag="flights",
)


@pytest.fixture
def desk(desk: Any, tmp_path: Path) -> Any:
    """Return a desk whose paths a shell would take apart."""
    desk.world = DeltaWorld(tmp_path / "it's a disk")
    return desk


def others(desk: Any) -> None:
    for path in (desk.world.folder / "elsewhere").rglob("*"):
        if path.is_file():
            path.unlink()


def older_copy(desk: Any) -> None:
    table = desk.world.folder / "table"
    shutil.copytree(table, desk.world.folder / "copy")
    desk.loaded("late.parquet")
    shutil.rmtree(table)
    (desk.world.folder / "copy").rename(table)


CASES: dict[str, tuple[Callable[[Any], None], type[ScopeProviderError]]] = {
    "restored": (lambda desk: desk.world.restore(0), TableRestoredError),
    "recreated": (lambda desk: desk.world.recreate(), TableRecreatedError),
    "an older copy of the table": (older_copy, TableBehindLogError),
    "checkpoint lost": (others, UnknownRowsError),
}


def elsewhere(desk: Any) -> Address:
    """Load two files by a pipeline whose checkpoint is not below the table."""
    desk.world.checkpoint = f"file://{desk.world.folder}/elsewhere"
    desk.loaded("a.parquet", "b.parquet")
    return Address(table=desk.world.table, checkpoint=desk.world.checkpoint)


def refused(desk: Any, address: Address, error: type[ScopeProviderError], **asked: Any) -> str:
    with pytest.raises(error) as caught:
        desk.world.run(**asked)
    return address.complete(caught.value.do)


def paste(desk: Any, message: str, *more: str) -> None:
    commands = COMMAND.findall(message)
    assert len(commands) == 1, message
    said = desk.scope(*shlex.split(commands[0]), *more)
    assert (said.code, said.err) == (0, ""), said


@pytest.mark.parametrize("case", CASES)
def test_a_pasted_command_lets_runs_go_on(desk: Any, case: str) -> None:
    damage, error = CASES[case]
    address = elsewhere(desk)
    damage(desk)

    message = refused(desk, address, error)
    paste(desk, message, "--yes")
    desk.world.drop("c.parquet", 60)
    desk.world.run()

    assert any(row[0].endswith("c.parquet") for row in desk.world.rows())


@pytest.mark.parametrize("restart", ["at once", "after the refresh was logged"])
def test_a_table_that_is_gone_has_a_message_of_its_own_and_a_full_refresh_makes_it_again(
    desk: Any, restart: str
) -> None:
    address = elsewhere(desk)
    (desk.world.folder / "table").rename(desk.world.folder / "gone")

    message = refused(desk, address, TableGoneError)
    assert (COMMAND.findall(message), "full_refresh=True" in message) == ([], True)
    said = desk.scope("accept-table", desk.world.table, "--checkpoint", desk.world.checkpoint)
    assert (said.code, said.out, said.err.startswith("TableGoneError: ")) == (1, "", True)
    if restart != "at once":
        with pytest.raises(ScopeProviderError):
            desk.world.run(engine=VanishingFile(desk.world, "a.parquet"), refresh=True)
        desk.world.show("a.parquet")
    desk.world.run(refresh=restart == "at once")
    assert desk.rows_are_those_of("a.parquet", "b.parquet")

    desk.world.drop("c.parquet", 60)
    desk.world.run()

    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")


def test_each_command_that_status_names_works_when_pasted(desk: Any) -> None:
    elsewhere(desk)
    desk.vanished("c.parquet", 2)
    (desk.world.folder / "elsewhere" / "watermark.json").write_text("{}")
    place = ("--checkpoint", desk.world.checkpoint)
    desk.masked = str  # what is shown is pasted as it is

    commands = COMMAND.findall(desk.scope("status", desk.world.table, *place).out)

    assert [command.split()[0] for command in commands] == ["rebuild", "abandon"]
    for command in commands:
        said = desk.scope(*shlex.split(command), "--yes")
        assert (said.code, said.err) == (0, ""), said
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


@pytest.mark.parametrize("command", ["status", "quarantine", "abandon"])
@pytest.mark.parametrize("option", ["--interval", "--checkpoint"])
def test_an_empty_text_does_not_lead_to_the_pipeline_beside_the_one_that_is_meant(
    desk: Any, command: str, option: str
) -> None:
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)

    said = desk.reads(
        command, desk.world.table, option, "", *(["1", "--yes"] if command == "abandon" else [])
    )

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("InputError: ")


@pytest.mark.parametrize("command", ["status", "quarantine", "abandon"])
def test_an_interval_that_is_none_is_not_in_the_command_that_shows_the_right_ones(
    desk: Any, command: str
) -> None:
    elsewhere(desk)
    words = [desk.world.table, "--checkpoint", desk.world.checkpoint, "--interval", "yesterday"]
    said = desk.scope(command, *words, *(["2"] if command == "abandon" else []))

    assert (said.code, COMMAND.findall(said.err)[0].split()[0]) == (1, "status")
    assert "yesterday" not in COMMAND.findall(said.err)[0]
    assert "--checkpoint" in COMMAND.findall(said.err)[0]


MOVES = {
    # the checkpoint is below the table, the table is copied
    "moved with its checkpoint": (True, False),
    "moved, the checkpoint is elsewhere": (False, False),
    "copied with its checkpoint": (True, True),
    "copied, the checkpoint is elsewhere": (False, True),
}


@pytest.mark.parametrize("case", MOVES)
def test_a_table_that_was_moved_or_copied_is_loaded_where_it_is_now(desk: Any, case: str) -> None:
    is_below, is_copied = MOVES[case]
    if not is_below:
        desk.world.checkpoint = f"file://{desk.world.folder}/elsewhere"
    desk.loaded("a.parquet", "b.parquet")
    table = desk.world.folder / "table"
    (shutil.copytree if is_copied else shutil.move)(table, desk.world.folder / "moved")
    before = (desk.world.table, desk.world.checkpoint)
    desk.world.table = f"file://{desk.world.folder}/moved"
    if is_below:
        desk.world.checkpoint = f"{desk.world.table}/_checkpoint"

    desk.world.drop("c.parquet", 60)
    desk.world.run()

    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")
    if not is_copied:
        return
    desk.world.table, desk.world.checkpoint = before
    if is_below:  # two pipelines by now
        desk.world.run()
        assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")
        return
    address = Address(table=desk.world.table, checkpoint=desk.world.checkpoint)
    paste(desk, refused(desk, address, TableBehindLogError), "--yes")
    desk.world.run(refresh=True)
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")


def test_of_a_table_that_was_moved_without_its_checkpoint_the_message_says_to_bring_it(desk: Any) -> None:
    desk.loaded("a.parquet", "b.parquet")
    (desk.world.folder / "table" / "_checkpoint").rename(desk.world.folder / "left")
    (desk.world.folder / "table").rename(desk.world.folder / "moved")
    desk.world.table = f"file://{desk.world.folder}/moved"
    desk.world.checkpoint = f"{desk.world.table}/_checkpoint"

    message = refused(desk, Address(table=desk.world.table), UnknownRowsError)
    assert message.startswith("if the checkpoint was moved or lost, bring it back.")
    (desk.world.folder / "left").rename(desk.world.folder / "moved" / "_checkpoint")
    desk.world.drop("c.parquet", 60)
    desk.world.run()

    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")


@pytest.mark.parametrize("is_below_the_table", [True, False])
def test_of_an_older_checkpoint_the_message_says_how_to_begin_again(
    desk: Any, is_below_the_table: bool
) -> None:
    if not is_below_the_table:
        desk.world.checkpoint = f"file://{desk.world.folder}/elsewhere"
    desk.loaded("a.parquet", "b.parquet")
    checkpoint = Path(desk.world.checkpoint.removeprefix("file://"))
    shutil.copytree(checkpoint, desk.world.folder / "older")
    desk.world.drop("c.parquet", 60)
    desk.world.run()
    checkpoint.rename(desk.world.folder / "newest")
    (desk.world.folder / "older").rename(checkpoint)

    address = Address(table=desk.world.table, checkpoint=desk.world.checkpoint)
    messages = [refused(desk, address, TableAheadOfLogError, refresh=refresh) for refresh in (False, True)]
    said = desk.scope("accept-table", desk.world.table, "--checkpoint", desk.world.checkpoint, "--yes")
    assert (said.code, said.err.splitlines()[0].split(":")[0]) == (1, "TableAheadOfLogError")
    for message in messages:
        assert "move the folder of the checkpoint away" in message
        assert "full_refresh=True" in message
    checkpoint.rename(desk.world.folder / "away")
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")
    assert "starting_timestamp" in refused(desk, address, UnknownRowsError)
    desk.world.run(refresh=True)
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")
    desk.world.drop("d.parquet", 30)
    desk.world.run()

    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet", "d.parquet")


def test_an_older_copy_of_the_table_is_accepted_with_the_rows_named_that_are_gone(desk: Any) -> None:
    elsewhere(desk)
    older_copy(desk)

    said = desk.scope("accept-table", desk.world.table, "--checkpoint", desk.world.checkpoint)

    assert "the rows of batch 2 (1 file) are no longer in the table: the files count as loaded\n" in said.out
    assert "full_refresh=True" in said.out


def refresh_undone(desk: Any) -> list[str]:
    """Archive a loaded file, refresh, and RESTORE the table; give the commands of the message, in order."""
    address = elsewhere(desk)
    desk.world.hide("a.parquet")
    desk.world.run(refresh=True)
    desk.world.restore(desk.world.version() - 1)
    (command,) = COMMAND.findall(refused(desk, address, TableRestoredError))
    said = desk.scope(*shlex.split(command))
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("BatchOutcomeUnknownError: A RESTORE of file:///table, or an older copy, ")
    assert "that the refresh has not loaded (1) are back." in said.err
    assert "The files: file:///landing/a.parquet.\n" in said.err
    with pytest.raises(BatchOutcomeUnknownError) as caught:
        desk.world.accept()
    return COMMAND.findall(address.complete(caught.value.do))


def test_a_refresh_that_was_undone_to_get_the_rows_of_archived_files_back_is_accepted(desk: Any) -> None:
    accept, _, _ = refresh_undone(desk)

    said = desk.scope(*shlex.split(accept))

    assert said.code == 0
    assert said.out.split("means:\n")[1].startswith(
        "- the full refresh that began with batch 2 is undone: the old rows are back\n"
        "- of these rows, the files that the refresh has not loaded (1) count as new, and are loaded once "
        "more if they are in the source: file:///landing/a.parquet\n"
        "accepted, as "
    )
    desk.world.drop("d.parquet", 60)
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "d.parquet")
    report = desk.world.run(refresh=True)
    assert report.warnings[READ].startswith(
        "Loaded files that the source no longer has, or that are left out of it: 1 of 3."
    )


def test_the_table_can_be_set_to_the_refresh_again(desk: Any) -> None:
    _, accept, _ = refresh_undone(desk)
    desk.world.restore(desk.world.version() - 1)

    said = desk.scope(*shlex.split(accept))

    assert (said.code, said.out.splitlines()[2]) == (
        0,
        "- no batch lost its rows, and no file is loaded again",
    )
    desk.world.show("a.parquet")
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


def test_or_the_rows_of_the_files_are_deleted_and_loaded_again(desk: Any) -> None:
    _, _, accept = refresh_undone(desk)
    path = f"{desk.world.root}/a.parquet".replace("'", "''")
    DeltaTable(local(desk.world.table)).delete(f"file = '{path}'")

    assert desk.scope(*shlex.split(accept)).code == 0
    desk.world.show("a.parquet")
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


def test_a_refresh_of_all_files_that_was_undone_took_no_rows_away_but_those_since(desk: Any) -> None:
    elsewhere(desk)
    desk.world.drop("d.parquet", 60)
    before = desk.world.version()
    desk.world.run(refresh=True)
    desk.world.restore(before)

    said = desk.scope("accept-table", desk.world.table, "--checkpoint", desk.world.checkpoint)

    assert said.out.splitlines()[2:-1] == [
        "- the full refresh that began with batch 2 is undone: the old rows are back",
        "- the rows of 1 file of batches 2 to 4 are no longer in the table: the files count as loaded",
        "- to get these rows back, run the task once with full_refresh=True, which loads all files again",
    ]


@pytest.mark.parametrize("name", [f"commits/{1:020}", "pipeline.json"])
def test_a_checkpoint_that_cannot_be_read_and_has_no_copy_is_begun_again(desk: Any, name: str) -> None:
    address = elsewhere(desk)
    checkpoint = Path(desk.world.checkpoint.removeprefix("file://"))
    record = checkpoint / name
    record.write_bytes(record.read_bytes()[:-9])

    message = refused(desk, address, CheckpointCorruptError)

    assert "If there is no copy, move the folder of the checkpoint away while nothing runs" in message
    checkpoint.rename(desk.world.folder / "away")
    desk.world.drop("c.parquet", 60)
    desk.world.run(refresh=True)
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")


def roots_changed(desk: Any) -> None:
    desk.world.root = f"file://{desk.world.folder}/new landing"
    (desk.world.folder / "new landing").mkdir()


OPEN_BATCHES: dict[str, tuple[Callable[[Any], None], type[ScopeProviderError]]] = {
    "the roots were changed": (roots_changed, CheckpointCorruptError),
    "a file is lost": (lambda _: None, SourceFileGoneError),
    "a file was changed": (lambda desk: desk.world.drop("c.parquet", 50), SourceFileChangedError),
}


@pytest.mark.parametrize("case", OPEN_BATCHES)
def test_an_error_of_a_run_with_an_open_batch_has_the_whole_command(desk: Any, case: str) -> None:
    change, error = OPEN_BATCHES[case]
    address = elsewhere(desk)
    desk.vanished("c.parquet", 2)
    change(desk)
    request, spec = desk.world.asked()

    with pytest.raises(error) as caught:
        desk.world._execution(spec, open_gate).run(replace(request, address=address))

    place = f"--checkpoint {shlex.quote(desk.world.checkpoint)}"
    assert COMMAND.findall(caught.value.do) == [f"abandon {shlex.quote(desk.world.table)} 2 {place}"]
    paste(desk, caught.value.do, "--yes")
    desk.world.run()
    assert not desk.world.log().open_entries()
    assert {"a.parquet", "b.parquet"} <= {row[0].rpartition("/")[2] for row in desk.world.rows()}


def texts_of(path: Path) -> Iterator[str]:
    """Return the texts in a module; what is put into them is a number."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


NAMED = sorted(
    {
        command
        for path in Path(airflow_provider_scope.__path__[0]).rglob("*.py")
        for text in texts_of(path)
        for command in re.findall(r"(?<!`)`airflow\s+scope\s+([a-z-]+[^`]*)`(?!`)", text)
        if not command.endswith("--help")
    }
)
"""The commands in all messages of the package, as they are written there."""


@pytest.mark.parametrize("command", NAMED)
def test_each_command_in_a_message_is_one_that_the_parser_takes_once_it_is_completed(command: str) -> None:
    text = ADDRESS.complete(f"`airflow scope {command}`")

    args = get_parser().parse_args(["scope", *shlex.split(COMMAND.findall(text)[0])])
    assert getattr(args, "delta_location", ADDRESS.table) == ADDRESS.table


def test_an_error_before_there_is_a_table_names_no_command_that_needs_one() -> None:
    """The arguments are refused when the Dag file is read: no batch, and often no table, is known."""
    for module in ("specs", "operators"):
        for path in Path(airflow_provider_scope.__path__[0], module).glob("*.py"):
            assert not [text for text in texts_of(path) if re.search(r"(?<!`)`airflow scope", text)], path


@pytest.mark.parametrize("name", OPTIONS)
def test_a_command_that_a_message_names_shortly_gets_all_that_its_parser_needs(name: str) -> None:
    text = ADDRESS.complete(f"run `airflow scope {name}` now")

    args = vars(get_parser().parse_args(["scope", *shlex.split(COMMAND.findall(text)[0])]))
    assert ADDRESS.complete(text) == text
    expected = {option: getattr(ADDRESS, option) for option in OPTIONS[name]}
    assert {option: args[option] for option in OPTIONS[name]} == expected
    assert args.get("delta_location") in (None, ADDRESS.table)
    assert args.get("seq") in (None, 3)


def test_a_command_is_completed_once_also_if_the_name_of_the_table_ends_it() -> None:
    address = Address(table="/data/a`b", batch=3)
    text = address.complete("run `airflow scope abandon` now")

    assert text == "run `airflow scope abandon '/data/a`b' 3` now"
    assert address.complete(text) == text


def test_an_error_of_a_block_leaves_it_with_whole_commands() -> None:
    with pytest.raises(ScopeProviderError) as caught, Address(table="/my t").completes_errors():
        raise ScopeProviderError("what", do="run `airflow scope abandon 3`")

    assert caught.value.do == "run `airflow scope abandon '/my t' 3`"
