"""The commands for a Spark that stays on this machine."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from airflow_provider_scope.cli.output import command, say
from airflow_provider_scope.cli.tasks import ingest_of_task
from airflow_provider_scope.engines import assembly, server
from airflow_provider_scope.engines.spark import SubmitEngine
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import SparkEngine
from airflow_provider_scope.values import iso_time

if TYPE_CHECKING:
    from argparse import Namespace


@command
def start(args: Namespace) -> None:
    """Become the server that the runs of a task use; it stays until it is stopped."""
    ingest, context = ingest_of_task(args)
    is_spark = isinstance(ingest.engine, SparkEngine)
    engine = assembly.spark_engine(*assembly.placed(ingest, context), context) if is_spark else None
    if not isinstance(engine, SubmitEngine):
        raise InputError(
            f"The task {context.task} starts no Spark on this machine.",
            kept="everything; nothing was started",
            do="name a task whose SparkEngine runs in local mode, or in client mode on a cluster",
        )
    words, variables = engine.server_command()
    say(f"Spark for the runs of {context.task}")
    sys.stdout.flush()
    os.execvpe(words[0], words, variables)  # noqa: S606


@command
def list_servers(args: Namespace) -> None:
    """Show each server of this user on this machine as a row."""
    from airflow.cli.simple_table import AirflowConsole  # noqa: PLC0415

    rows = [
        {
            "server": state.name,
            "pid": str(state.pid),
            "started_for": state.task,
            "master": state.master,
            "started": iso_time(state.started_ms),
            "runs": str(state.runs),
            "memory": f"{state.used_mb:,} of {state.max_mb:,} MiB",
        }
        for state in server.servers()
    ]
    AirflowConsole().print_as(rows, args.output)


@command
def stop(args: Namespace) -> None:
    """End a server, and see that it has ended."""
    states = {state.name: state for state in server.servers()}
    if args.server not in states:
        raise InputError(
            f"No Spark server {args.server} of this user runs on this machine.",
            kept="the servers that run",
            do="take a name from `airflow scope spark-server list`",
        )
    server.end(states[args.server], say)
    say(f"{args.server} has ended")
