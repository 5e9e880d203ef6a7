"""The commands of ``airflow scope``, as Airflow's command line takes them. Nothing slow is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.cli.cli_config import ARG_OUTPUT, ActionCommand, Arg, GroupCommand, lazy_load_command

from airflow_provider_scope.protocol.commands import OPTIONS, RETAIN_AT_LEAST, RETAIN_BATCHES

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand

_NAMED = {
    "checkpoint": Arg(("--checkpoint",), help="Location of the checkpoint, if it is not below the table"),
    "storage_conn_id": Arg(
        ("--storage-conn-id",),
        help="Connection for the store of the table and the checkpoint; a disk needs none",
    ),
    "interval": Arg(
        ("--interval",), help='The interval, <start>_<end>, of a pipeline with mode="data_interval"'
    ),
    # None, as the others are, if it is not given: then it is in no command that is printed.
    "all_intervals": Arg(
        ("--all-intervals",), help="Do it for every interval", action="store_true", default=None
    ),
    "engine": Arg(
        ("--engine",),
        help="What runs the pipeline; the default is SCOPE if it ran jobs and Spark "
        "committed nothing after them, or if Spark cannot read its store; otherwise Spark",
        choices=("spark", "scope"),
    ),
    "spark_conn_id": Arg(("--spark-conn-id",), help="Spark connection; the default is Spark in local mode"),
    "scope_conn_id": Arg(("--scope-conn-id",), help="Connection of Azure Data Lake Analytics"),
    "map_index": Arg(("--map-index",), help="The instance of a mapped task", type=int, default=-1),
    "tag": Arg(("--tag",), help="Start of the jobs' names, up to a _", required=True),
}
"""The options that name a pipeline: which command has which is in ``protocol.commands``."""

_TABLE = Arg(("delta_location",), help="Path or URI of the Delta table")
_SEQ = Arg(("seq",), help="The batch's number", type=int)
_TASK = (Arg(("dag_id",), help="The id of the Dag"), Arg(("task_id",), help="The id of the task"))
_SERVER = Arg(("server",), help="Its name, as the list shows it")
_BUNDLE = Arg(("--bundle-name",), help="The Dag bundle to look in", action="append")
_YES = Arg(
    ("-y", "--yes"),
    help="Do it. Without this option, the command only shows what it would do",
    action="store_true",
)
_OUTPUT = Arg(
    ("-o", "--output"),
    help="Output format",
    choices=("text", "json"),
    default="text",
    dest="output_format",
)
_VERBOSE = Arg(("-v", "--verbose"), help="Show details of errors", action="store_true")


def _flag(name: str, text: str) -> Arg:
    return Arg((name,), help=text, action="store_true")


def _command(name: str, summary: str, *args: Arg, module: str, function: str = "") -> ActionCommand:
    path = f"airflow_provider_scope.cli.{module}.{function or name.replace('-', '_')}"
    options = [_NAMED[option] for option in OPTIONS.get(name, ())]
    return ActionCommand(
        name=name, help=summary, func=lazy_load_command(path), args=(*args, *options, _VERBOSE)
    )


def _reading(name: str, summary: str, *args: Arg, module: str = "inspection") -> ActionCommand:
    return _command(name, summary, *args, _OUTPUT, module=module)


def _writing(name: str, summary: str, *args: Arg) -> ActionCommand:
    return _command(name, summary, *args, _YES, module="repairs")


def get_scope_cli_commands() -> list[CLICommand]:
    servers = (
        _command(
            "start",
            "Start the server of a task in the foreground",
            *_TASK,
            _BUNDLE,
            _NAMED["map_index"],
            module="tasks",
            function="start_server",
        ),
        _command("list", "Show those that run", ARG_OUTPUT, module="tasks", function="list_servers"),
        _command(
            "stop", "End one when no run uses it any more", _SERVER, module="tasks", function="stop_server"
        ),
    )
    commands = (
        _command(
            "list",
            "Show the pipelines of all Dags of this Airflow",
            _BUNDLE,
            ARG_OUTPUT,
            module="tasks",
            function="list_pipelines",
        ),
        _command(
            "init",
            "Look at a source, and write the Dag file that loads it",
            Arg(
                ("source",),
                help="Folder of files, or of a Delta table with a change data feed; or conn_id:schema.table",
            ),
            Arg(("table",), help="Path or URI of the Delta table that is to be loaded"),
            Arg(("--conn-id",), help="Connection of a database; SOURCE is then the name of a table"),
            _NAMED["storage_conn_id"],
            Arg(("--format",), help="Format of the files", choices=("csv", "json", "parquet", "orc", "text")),
            Arg(
                ("--key",), help="A column that identifies a row; can be given several times", action="append"
            ),
            Arg(
                ("--output",),
                help="The Dag file, such as dags/orders.py; the default is standard output",
                dest="output_file",
            ),
            _flag("--force", "Write over a file that exists"),
            _flag("--verify", "Start Spark, read the first batch, and show all in it that does not fit"),
            module="init",
        ),
        _reading("status", "Show the log's tail, open batches and their jobs, watermark and table", _TABLE),
        _reading(
            "plan",
            "Show what a run of a task would load; nothing is written",
            *_TASK,
            _BUNDLE,
            _flag("--full-refresh", "Show what a run with full_refresh=True would do"),
            _flag("--read", "Start Spark, read the first batch, and show all in it that does not fit"),
        ),
        _reading(
            "quarantine", "Show what could not be loaded and was quarantined", _TABLE, module="quarantine"
        ),
        _writing("rebuild", "Write watermark.json and sources/ again from the log", _TABLE),
        _writing(
            "vacuum",
            "Delete records and derived files that no run needs any more",
            _TABLE,
            Arg(
                ("--retain-batches",),
                help="How many of the newest committed batches keep their records (default: "
                f"{RETAIN_BATCHES}, at least {RETAIN_AT_LEAST})",
                type=int,
                default=RETAIN_BATCHES,
            ),
        ),
        _writing("abandon", "Abandon the oldest open batch: its files count as new again", _TABLE, _SEQ),
        _writing(
            "accept-table",
            "Accept a table that was restored or recreated",
            _TABLE,
            _flag(
                "--reload-undecidable",
                "Load open batches again if the table's log no longer shows whether it holds their rows",
            ),
        ),
        _writing(
            "settle",
            "Decide whether the rows of a SCOPE job are in the table, if nothing else shows it",
            _TABLE,
            _SEQ,
            _flag("--committed", "Its rows are in the table"),
            _flag("--not-committed", "Its rows are not in the table"),
        ),
        _writing(
            "take-over",
            "Accept a table that dbt-scope has loaded since it was taken over",
            _TABLE,
            Arg(
                ("--at-watermark",),
                help="How to treat files that have exactly the watermark's time and that no record names",
                choices=("loaded", "new"),
            ),
        ),
        _writing("cancel-jobs", "Cancel SCOPE jobs of this package that have not ended"),
        GroupCommand(name="spark-server", help="Start and stop a Spark that stays", subcommands=servers),
    )
    help_text = "Inspect and repair incremental pipelines into Delta tables"
    return [GroupCommand(name="scope", help=help_text, subcommands=commands)]
