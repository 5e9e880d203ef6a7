"""The command: it looks at a source, and writes the Dag file that loads it."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.cli import inspection
from airflow_provider_scope.cli.init.dag_file import KEPT, dag_text, refusal
from airflow_provider_scope.cli.init.files import folder_of
from airflow_provider_scope.cli.init.tables import database_load, database_table_of, feed_of
from airflow_provider_scope.cli.output import command, say, set_address
from airflow_provider_scope.cli.tasks import Instance
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol import dry_run
from airflow_provider_scope.stores.kinds import kind_of
from airflow_provider_scope.stores.protocol import canonical_root
from airflow_provider_scope.values import base_name

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_scope.cli.init.dag_file import Load


@command
def init(args: Namespace) -> None:
    """Look at a source, and write the Dag file that loads it; nothing else is written.

    :raises ScopeProviderError: The source cannot be loaded, or the first run would fail.
    """
    from airflow_provider_scope.operators.base import address_of  # noqa: PLC0415

    output = Path(args.output_file) if args.output_file else None
    if output and os.path.exists(output) and not args.force:  # noqa: PTH110 - whatever the name is
        raise refusal(
            f"The file {output} exists.",
            "name another file in --output; or add --force, which writes over it",
        )
    name = output.stem if output else base_name(args.table.rstrip("/"))
    # As Airflow takes an id, and a command: an option begins with a dash.
    dag_id = re.sub(r"^-|[^\w.-]+", "_", name)[:250] or "load"
    text = dag_text(dag_id, args.table, args.storage_conn_id, _load_of(args))
    instance = _task_of(text)
    ingest, context = instance.ingest(), instance.context()
    set_address(address_of(ingest, (dag_id, "load"), None, context.storage_conn_id))
    execution, request, _ = assembly.assemble(ingest, context)
    preview = dry_run.preview(execution, request)
    if preview.error:
        preview.error.kept = KEPT
        raise preview.error
    if output is None:
        say(text.rstrip("\n"))
    else:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text, encoding="utf-8")
        except OSError as err:
            raise InputError(
                f"The file {output} could not be written: {err.strerror}.",
                kept="everything else; the file may be there in part",
                do="name a file in --output that can be written",
            ) from err
        say(f"{output} is written: read its comments. Next:")
        say(f"  airflow scope plan {dag_id} load --read")
        say(f"  airflow dags test {dag_id}")
        conn_id = f" --storage-conn-id {shlex.quote(args.storage_conn_id)}" if args.storage_conn_id else ""
        say(f"  airflow scope status {shlex.quote(args.table)}{conn_id}")
    if args.verify:
        args.read = True
        say()
        inspection.show_plan(args, ingest, context)


def _task_of(text: str) -> Instance:
    """Execute a Dag file, and return its task."""
    from airflow.sdk import DAG  # noqa: PLC0415 - slow to load, as the operator is

    variables: dict[str, Any] = {}
    exec(compile(text, "<the Dag file>", "exec"), variables)  # noqa: S102 - it is our own
    (dag,) = (value for value in variables.values() if isinstance(value, DAG))
    return Instance(dag, dag.get_task("load"))


def _load_of(args: Namespace) -> Load:
    key = args.key or []
    conn_id, colon, table = args.source.partition(":")
    if args.conn_id:
        conn_id, table = args.conn_id, args.source
    if args.conn_id or (colon and "/" not in args.source):
        return database_load(conn_id, database_table_of(conn_id, table, key))
    root = canonical_root(args.source)
    kind = kind_of(root)
    if kind.no_control_files:
        raise refusal(
            f"{root} is on {kind.name}, whose files this command cannot look into.",
            "write the Dag file yourself, with a FileSource",
        )
    storage = store_of(root, args.storage_conn_id).storage
    if storage.names(f"{root}/_delta_log"):
        return feed_of(args.source, root, storage, key)
    if key:
        raise refusal(
            f"--key is for tables, and {root} is none: it has no _delta_log.",
            'leave it out; if files bring newer rows of a key, write Merge(strategy="upsert", primary_key=…) '
            "in the Dag file",
        )
    return folder_of(args.source, root, storage, args.format)
