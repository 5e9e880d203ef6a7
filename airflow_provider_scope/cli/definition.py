"""The commands of ``airflow scope``, as Airflow's command line takes them. Nothing slow is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.cli.cli_config import ARG_OUTPUT, ActionCommand, Arg, GroupCommand, lazy_load_command

from airflow_provider_scope.protocol.commands import RETAIN_AT_LEAST, RETAIN_BATCHES

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand

_TABLE = Arg(("delta_location",), help="Path or URI of the Delta table")
_CHECKPOINT = Arg(
    ("--checkpoint",), help="Location of the checkpoint, if it is not below the table", default=None
)
_STORAGE = Arg(
    ("--storage-conn-id",),
    help="Connection for the store of the table and the checkpoint; a disk needs none",
    default=None,
)
_YES = Arg(
    ("-y", "--yes"),
    help="Do it. Without this option, the command only shows what it would do",
    action="store_true",
)
_SPARK = Arg(("--spark-conn-id",), help="Spark connection; the default is Spark in local mode", default=None)
_RELOAD = Arg(
    ("--reload-undecidable",),
    help="Load open batches again if the table's log no longer shows whether it holds their rows",
    action="store_true",
)
_SCOPE = Arg(
    ("--scope-conn-id",), help="Connection of Azure Data Lake Analytics", default="adla_scope_default"
)
_ENGINE = Arg(
    ("--engine",),
    help="What runs the pipeline; the default is SCOPE if any of its batches was ever a job, otherwise Spark",
    choices=("spark", "scope"),
    default=None,
)
_TASK = (
    Arg(("dag_id",), help="The id of the Dag"),
    Arg(("task_id",), help="The id of the task"),
    Arg(("--bundle-name",), help="The Dag bundle to look in", action="append"),
    Arg(("--map-index",), help="The instance of a mapped task", type=int, default=-1),
)
_INTERVAL = Arg(
    ("--interval",),
    help='The interval, <start>_<end>, of a pipeline with mode="data_interval"',
    default=None,
)
_SEQ = Arg(("seq",), help="The batch's number", type=int)
_OUTPUT = Arg(
    ("-o", "--output"),
    help="Output format",
    choices=("text", "json"),
    default="text",
    dest="output_format",
)
_VERBOSE = Arg(("-v", "--verbose"), help="Show details of errors", action="store_true")


def _command(
    name: str, summary: str, *args: Arg, module: str = "inspection", function_name: str = ""
) -> ActionCommand:
    path = f"airflow_provider_scope.cli.{module}.{function_name or name.replace('-', '_')}"
    function = lazy_load_command(path)
    return ActionCommand(name=name, help=summary, func=function, args=(*args, _VERBOSE))


def get_scope_cli_commands() -> list[CLICommand]:
    """Give the command group ``airflow scope``."""
    return [
        GroupCommand(
            name="scope",
            help="Inspect and repair incremental pipelines into Delta tables",
            subcommands=(
                _command(
                    "list",
                    "Show the pipelines of all Dags of this Airflow",
                    Arg(("--bundle-name",), help="The Dag bundle to look in", action="append"),
                    ARG_OUTPUT,
                    module="pipelines",
                    function_name="list_pipelines",
                ),
                _command(
                    "status",
                    "Show the log's tail, open batches and their jobs, watermark and table",
                    _TABLE,
                    _CHECKPOINT,
                    _STORAGE,
                    _INTERVAL,
                    _ENGINE,
                    _SCOPE,
                    _OUTPUT,
                ),
                _command(
                    "plan",
                    "Show what a run of a task would load; nothing is written",
                    *_TASK,
                    _INTERVAL,
                    Arg(
                        ("--full-refresh",),
                        help="Show what a run with full_refresh=True would do",
                        action="store_true",
                    ),
                    _OUTPUT,
                ),
                _command(
                    "quarantine",
                    "Show what could not be loaded and was quarantined",
                    _TABLE,
                    _CHECKPOINT,
                    _STORAGE,
                    _INTERVAL,
                    _OUTPUT,
                ),
                _command(
                    "rebuild",
                    "Write watermark.json and sources/ again from the log",
                    _TABLE,
                    _CHECKPOINT,
                    _STORAGE,
                    _YES,
                    module="repairs",
                ),
                _command(
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
                    _CHECKPOINT,
                    _STORAGE,
                    _ENGINE,
                    _SCOPE,
                    _YES,
                    module="repairs",
                ),
                _command(
                    "abandon",
                    "Abandon the oldest open batch: its files count as new again",
                    _TABLE,
                    _SEQ,
                    _CHECKPOINT,
                    _STORAGE,
                    _INTERVAL,
                    _ENGINE,
                    _SPARK,
                    _SCOPE,
                    _YES,
                    module="repairs",
                ),
                _command(
                    "accept-table",
                    "Accept a table that was restored or recreated",
                    _TABLE,
                    _CHECKPOINT,
                    _STORAGE,
                    _INTERVAL,
                    Arg(
                        ("--all-intervals",),
                        help="Do it for every interval",
                        action="store_true",
                        default=None,
                    ),
                    _ENGINE,
                    _SPARK,
                    _SCOPE,
                    _RELOAD,
                    _YES,
                    module="repairs",
                ),
                _command(
                    "settle",
                    "Decide whether the rows of a SCOPE job are in the table, if nothing else shows it",
                    _TABLE,
                    _SEQ,
                    Arg(("--committed",), help="Its rows are in the table", action="store_true"),
                    Arg(("--not-committed",), help="Its rows are not in the table", action="store_true"),
                    _CHECKPOINT,
                    _STORAGE,
                    _SCOPE,
                    _YES,
                    module="scope_jobs",
                ),
                _command(
                    "take-over",
                    "Accept a table that dbt-scope has loaded since it was taken over",
                    _TABLE,
                    Arg(
                        ("--at-watermark",),
                        help="How to treat files that have exactly the watermark's time and that no record "
                        "names",
                        choices=("loaded", "new"),
                        default=None,
                    ),
                    _CHECKPOINT,
                    _STORAGE,
                    _YES,
                    module="repairs",
                ),
                _command(
                    "cancel-jobs",
                    "Cancel SCOPE jobs of this package that have not ended",
                    Arg(("--tag",), help="Start of the jobs' names, up to a _", required=True),
                    _SCOPE,
                    _YES,
                    module="scope_jobs",
                ),
            ),
        )
    ]
