"""The commands of ``airflow scope`` as tasks, for an Airflow whose workers nobody has a shell on."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope import validation
from airflow_provider_scope.cli.definition import get_scope_cli_commands
from airflow_provider_scope.exceptions import InputError, ScopeProviderError
from airflow_provider_scope.operators.base import check_names, fail
from airflow_provider_scope.protocol.report import XCOM_LIMIT_BYTES, json_length
from airflow_provider_scope.templates import KeepsPlainTexts
from airflow_provider_scope.validation import is_deferred

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.cli.cli_config import ActionCommand
    from airflow.sdk import Context

ITEMS_AT_MOST, TEXT_LENGTH = 10, 500
"""Of a list and of a text, in XCom."""
_KEPT = "everything; nothing was read or written"


class PipelineCommandOperator(KeepsPlainTexts):
    """Run a command of ``airflow scope``. What it says is in the task's log.

    The task fails with the command's error, where the command ends with exit code 1.

    :param command: The command with its arguments: as text, which is split as a shell does, or as a list of
        words. ``airflow scope`` before it may stay.
    :param yes: Do it, as ``--yes`` does: otherwise, a command that writes only says what it would do.
    :return: As XCom, also if the task fails: ``exit_code``; ``error``, which is None or has ``type``,
        ``what``, ``kept`` and ``do``; ``output``, the lines of a command without JSON, or the keys of its
        JSON; and ``is_cut``: whether lists and texts were shortened to keep all this under 4 KiB.
    :raises InputError: There is no such command or argument; when the Dag is parsed, as far as it is known
        then.
    """

    template_fields: Sequence[str] = ("command", "yes")
    ui_color = "#dcecf5"

    def __init__(self, *, command: str | Sequence[str], yes: bool | str = False, **kwargs: Any) -> None:
        check_names(type(self), kwargs)
        super().__init__(**kwargs)
        self.command = command
        self.yes = yes
        validation.switch("yes", yes)
        _check(command)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the command."""
        from airflow_provider_scope.cli.output import lines_to

        lines: list[str] = []

        def write(line: str) -> None:
            lines.append(line)
            self.log.info("%s", line)

        try:
            command, args = _parsed(self.command)
            # The log is for people, and the JSON is the result: the command keeps its facts, and raises.
            options = vars(args)
            output = None if "output_format" in options else lines
            options |= {"output_format": "text", "verbose": True, "consent": "set yes=True"}
            options["yes"] = options.get("yes", False) or validation.switch("yes", self.yes)
        except InputError as err:
            fail(err, self.log)
        try:
            with lines_to(write):
                command.func(args)
        except (ScopeProviderError, AirflowException) as err:
            if self.do_xcom_push:
                result = _result(1, args.facts, output)
                context["ti"].xcom_push(key="return_value", value=result)
            if isinstance(err, ScopeProviderError):
                fail(err, self.log)
            raise
        return _result(0, args.facts, output)


# ---- the words of a command ----


class _Parser(argparse.ArgumentParser):
    """Raises errors, instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise InputError(
            f"The command is not valid: {message}.",
            kept=_KEPT,
            do=f"write it as in {self.format_usage().removeprefix('usage: ').strip()}",
        )


def _commands() -> dict[str, ActionCommand]:
    """Return the commands by name; not ``list``, which reads Airflow's database, as no task can.

    Nor ``init``, which writes a file for a person, who is not on the worker, nor those of ``spark-server``.
    """
    (group,) = get_scope_cli_commands()
    commands = group.subcommands  # type: ignore[union-attr] # it is one
    left_out = ("list", "init", "spark-server")
    return {command.name: command for command in commands if command.name not in left_out}


def _parsed(command: str | Sequence[str]) -> tuple[ActionCommand, argparse.Namespace]:
    """Read a command by the definitions that Airflow's command line has.

    :raises InputError: The command line would refuse it. The values of templates are not checked.
    """
    try:
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    except (ValueError, TypeError) as err:
        raise validation.bad("command", command, f"the words of a command ({err})") from None
    if words[:2] == ["airflow", "scope"]:
        del words[:2]
    if not words:
        raise validation.bad("command", command, "a command and its arguments")
    name, *arguments = words
    commands = _commands()
    validation.one_of("command", name, [*commands])
    parser = _Parser(prog=f"airflow scope {name}", add_help=False)
    is_template = any(map(is_deferred, arguments))
    for arg in commands[name].args:
        kwargs = {k: v for k, v in arg.kwargs.items() if not (is_template and k in ("type", "choices"))}
        parser.add_argument(*arg.flags, **kwargs)
    return commands[name], parser.parse_args(arguments)


def _check(command: Any) -> None:
    """Check as much of a command as is known before its templates are rendered.

    :raises InputError: There is no such command or argument.
    """
    if not is_deferred(command):
        words = command if isinstance(command, list | tuple) else ()
        if not any(map(is_deferred, words[:1])):
            _parsed(command)
    elif isinstance(command, str):
        before = command.split("{{")[0].split("{%")[0]
        name, blank, _ = before.removeprefix("airflow scope ").partition(" ")
        if name and blank:
            validation.one_of("command", name, [*_commands()])


# ---- the result ----


def _result(exit_code: int, facts: dict[str, Any], output: list[str] | None) -> dict[str, Any]:
    """Make the value of XCom: the longest lists lose their ends until it is short enough."""
    full = {"exit_code": exit_code, **facts, **({} if output is None else {"output": output})}
    lists: list[list[Any]] = []
    value: dict[str, Any] = _shortened(full, lists)
    while json_length(value) > XCOM_LIMIT_BYTES - len(', "is_cut": false') and any(lists):
        max(lists, key=json_length).pop()
    return {**value, "is_cut": value != full}


def _shortened(value: Any, lists: list[list[Any]]) -> Any:
    """Copy a value with the beginnings of its lists and texts.

    :param lists: Gets all lists of the copy.
    """
    if isinstance(value, dict):
        return {key: _shortened(item, lists) for key, item in value.items()}
    if isinstance(value, list | tuple):
        lists.append([_shortened(item, lists) for item in value[:ITEMS_AT_MOST]])
        return lists[-1]
    return value[:TEXT_LENGTH] if isinstance(value, str) else value
