"""The command that tries the SELECT of a task, before a job is paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli.output import command, say
from airflow_provider_scope.cli.targets import of_task
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.validation import Validator
from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from argparse import Namespace


@command
def validate(args: Namespace) -> None:
    """Run the SELECT of a task with local Spark, into a table that is thrown away."""
    if args.files is not None and args.files < 1:
        raise InputError(
            f"--files={args.files} is not valid: expected a whole number, at least 1.",
            kept="everything; nothing was read or written",
            do="leave it out, or give a number of files",
        )
    ingest, context = of_task(args)
    execution, request, runner = assembly.assemble(ingest, context)
    validator = Validator(ingest, execution, request, runner, context.log_file, say)
    validator.now(args.files or ingest.validate_on_spark or 1)
    say("nothing was written")
