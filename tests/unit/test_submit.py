"""spark-submit as a process: real programs of that name, which do what Spark does when it goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_provider_scope.engines import application, submit
from airflow_provider_scope.engines.submit import SubmitHook
from airflow_provider_scope.exceptions import (
    BadFileError,
    DeltaJarsError,
    InputError,
    SourceFileChangedError,
    SourceFileGoneError,
    SparkJobFailedError,
    StorageError,
)
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.records import Attempt
from airflow_provider_scope.spark.plan import EVENT, decode
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.stores.protocol import Store
from tests.support.fake_submit import PATIENCE, fake
from tests.support.values import a_file, an_entry

__all__ = ["fake"]

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED_DOWNLOADS = """\
:: resolution report :: resolve 222ms :: artifacts dl 15ms
:: problems summary ::
:::: WARNINGS
\t\t[NOT FOUND  ] io.delta#delta-storage;4.4.0!delta-storage.jar (5ms)

\t==== local-m2-cache: tried

\t  file:/cache/.m2/repository/io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar

\t\t::::::::::::::::::::::::::::::::::::::::::::::

\t\t::              FAILED DOWNLOADS            ::

\t\t:: ^ see resolution messages for details  ^ ::

\t\t::::::::::::::::::::::::::::::::::::::::::::::

\t\t:: io.delta#delta-storage;4.4.0!delta-storage.jar

\t\t::::::::::::::::::::::::::::::::::::::::::::::



:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
Exception in thread "main" java.lang.RuntimeException: [download failed: io.delta#delta-storage;4.4.0]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""
UNRESOLVED = """\
:: problems summary ::
:::: WARNINGS
\tHost repo.example.org not found. url=https://repo.example.org/io/delta/delta-spark_4.2_2.13/4.4.1.pom

\t\tmodule not found: io.delta#delta-spark_4.2_2.13;4.4.1

\t\t::::::::::::::::::::::::::::::::::::::::::::::

\t\t::          UNRESOLVED DEPENDENCIES         ::

\t\t::::::::::::::::::::::::::::::::::::::::::::::

\t\t:: io.delta#delta-spark_4.2_2.13;4.4.1: not found

\t\t::::::::::::::::::::::::::::::::::::::::::::::


Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.1: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
"""  # noqa: E501 - as Spark writes it
OUT_OF_DISK = """\
26/11/21 16:10:56 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
26/11/21 16:10:57 ERROR SparkContext: Error initializing SparkContext.
java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""


def in_a_thread(function: Callable[[], Any]) -> Callable[[], BaseException | None]:
    """Start a function; the result waits for its end and gives its error."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as err:  # noqa: BLE001 - the test looks at it
            caught.append(err)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def finish() -> BaseException | None:
        thread.join(PATIENCE)
        assert not thread.is_alive()
        return caught[0] if caught else None

    return finish


# ---- how it is started -------------------------------------------------------------------------------


def test_the_program_beside_the_interpreter_is_run_whatever_is_on_path(fake, tmp_path, monkeypatch):
    fake.program("spark-submit", 'echo "the environment\'s own"')
    fake.program("spark-submit", "echo another one", folder="elsewhere")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "elsewhere"), os.environ["PATH"]]))

    fake.hook().run("main.py", ["the plan"])

    assert fake.log_file.read_text() == "the environment's own\n"


def test_without_a_connection_spark_is_local_and_the_plan_is_the_only_argument(fake):
    fake.program("spark-submit", 'echo "$@"')

    fake.hook(a="b").run("main.py", ["the plan"])

    (line,) = fake.log_file.read_text().splitlines()
    before, after = line.split(" --properties-file ")
    assert before == "--load-spark-defaults --master local[*]"
    settings, rest = after.split(" ", 1)
    assert rest == "--name default-name main.py the plan"
    assert not Path(settings).exists(), "the file of the settings outlives the application"


def test_settings_go_through_a_file_of_this_user_and_not_through_the_command_line(fake):
    fake.program(
        "spark-submit", 'for last; do case "$last" in *.conf) stat -c %a "$last"; cat "$last";; esac; done'
    )

    fake.hook(**{"spark.app.note": "a=b:c \\ d", "spark.lines": "  one\ntwo"}).run("main.py", [])

    assert fake.log_file.read_text().splitlines() == [
        "600",
        r"spark.app.note=a\=b\:c \\ d",
        r"spark.lines=\  one\ntwo",
    ]


def test_airflows_own_settings_and_connections_are_not_in_sparks_environment(fake, monkeypatch):
    for name in ("AIRFLOW_CONN_LAKE", "AIRFLOW_VAR_TOKEN", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        monkeypatch.setenv(name, "planted-secret")
    monkeypatch.setenv("AIRFLOW_HOME", "/home/airflow")
    fake.program("spark-submit", "env")

    fake.hook().run("main.py", [])

    said = fake.log_file.read_text()
    assert "planted-secret" not in said
    assert "AIRFLOW_HOME=/home/airflow\n" in said


def test_spark_is_given_the_properties_the_jars_and_the_user_of_each_store(fake):
    fake.program(
        "spark-submit",
        'echo "user $HADOOP_USER_NAME"; echo "arguments $*"\n'
        'for last; do case "$last" in *.conf) grep fs.azure "$last";; esac; done',
    )
    stores = (
        Store(
            storage=LocalStorage(),
            spark_conf={
                "spark.hadoop.fs.azure.note": "the store's",
                "spark.hadoop.fs.azure.account.key.acme": "planted-key",
            },
            packages=("org.apache.hadoop:hadoop-azure:3.5.0",),
        ),
        Store(storage=LocalStorage(), environment={"HADOOP_USER_NAME": "loader"}),
    )
    runner = fake.runner(stores, conf={"spark.hadoop.fs.azure.note": "mine"})

    runner.run(fake.work(), [an_entry(0, a_file("a"))])

    said = fake.log_file.read_text()
    assert "user loader\n" in said
    assert "spark.hadoop.fs.azure.note=mine\n" in said
    # The file holds it, and the log hides it.
    assert "spark.hadoop.fs.azure.account.key.acme=***\n" in said
    packages = said.partition("--packages ")[2].partition(" ")[0].split(",")
    assert packages[0].startswith("io.delta:delta-spark_")
    assert packages[1:] == ["org.apache.hadoop:hadoop-azure:3.5.0"]


def test_packages_of_the_conf_are_taken_beside_those_that_are_needed(fake):
    fake.program("spark-submit", 'echo "arguments $*"')
    runner = fake.runner((), conf={"spark.jars.packages": "org.example:a:1, org.example:b:2"})

    runner.run(fake.work(), [an_entry(0, a_file("a"))])

    packages = fake.log_file.read_text().partition("--packages ")[2].partition(" ")[0].split(",")
    assert packages[0].startswith("io.delta:delta-spark_")
    assert packages[1:] == ["org.example:a:1", "org.example:b:2"]


def test_output_is_added_to_the_file_and_events_are_handed_on_instead(fake):
    fake.prints(f'first\n{EVENT}{{"event": "started"}}\nsecond\n', 0)

    fake.hook().run("main.py", ["the plan"])
    fake.hook().run("main.py", ["the plan"])

    assert fake.log_file.read_text() == "first\nsecond\nfirst\nsecond\n"
    assert fake.events == [{"event": "started"}, {"event": "started"}]


@pytest.mark.parametrize("locale", ["", "POSIX", "not_INSTALLED.UTF-8", "tr_TR.ISO-8859-9"])
def test_java_is_told_that_names_are_utf_8_whatever_the_locale_of_the_worker(fake, monkeypatch, locale):
    monkeypatch.setenv("LC_ALL", locale)
    fake.program("spark-submit", 'echo "[$LC_ALL]"')

    fake.hook().run("main.py", [])

    assert fake.log_file.read_text() == "[C.UTF-8]\n"


def test_on_kubernetes_the_exit_code_of_spark_submit_decides(fake, monkeypatch):
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_K8S", "spark://k8s%3A%2F%2Fhttps%3A%2F%2Fhost:443")
    hook = SubmitHook(conn_id="k8s", log_file=fake.log_file, on_event=fake.events.append, conf={})

    fake.prints("all is done\n", 0)
    hook.run("main.py", ["the plan"])
    fake.prints("Error: it is not\n", 1)
    hook = SubmitHook(conn_id="k8s", log_file=fake.log_file, on_event=fake.events.append, conf={})
    with pytest.raises(SparkJobFailedError, match="Error: it is not"):
        hook.run("main.py", ["the plan"])


def test_a_connection_that_the_hook_of_spark_refuses_is_told_in_three_parts(fake, monkeypatch):
    monkeypatch.delattr(spark_submit, "kube_client", raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_K8S", "spark://k8s%3A%2F%2Fhttps%3A%2F%2Fhost:443")

    with pytest.raises(InputError) as caught:
        SubmitHook(conn_id="k8s", log_file=fake.log_file, on_event=fake.events.append, conf={})

    assert caught.value.what == (
        "The Spark connection 'k8s' cannot be used: a master on Kubernetes needs its provider: "
        "pip install 'airflow-provider-scope[kubernetes]'."
    )
    assert caught.value.kept
    assert "install what is missing on the worker" in caught.value.do


# ---- how it fails ------------------------------------------------------------------------------------


def test_a_jar_that_cannot_be_downloaded_is_named_with_the_ways_out(fake):
    fake.prints(FAILED_DOWNLOADS, 1)

    err = fake.failure()

    assert type(err) is DeltaJarsError
    assert str(err) == (
        "Spark could not resolve its packages: io.delta#delta-storage;4.4.0!delta-storage.jar\n"
        "Kept: everything; batches that were logged stay logged\n"
        "What to do: check that the worker reaches a Maven repository; if it does, its local cache may hold "
        "a .pom without the .jar (delete io/delta in ~/.m2/repository and ~/.ivy2*); or name the jars: "
        f"SparkEngine(jars=[...]). Full log: {fake.log_file}"
    )
    assert fake.log_file.read_text() == FAILED_DOWNLOADS


def test_a_package_that_no_repository_has_is_named(fake):
    fake.prints(UNRESOLVED, 1)

    err = fake.failure()

    assert type(err) is DeltaJarsError
    assert err.what == (
        "Spark could not resolve its packages: io.delta#delta-spark_4.2_2.13;4.4.1: not found"
    )


def test_an_application_that_dies_without_a_word_of_its_own_gives_its_last_error_and_the_file(fake):
    fake.prints(OUT_OF_DISK, 1)

    err = fake.failure()

    assert type(err) is SparkJobFailedError
    assert str(err) == (
        "spark-submit failed: java.io.IOException: No space left on device\n"
        "Kept: the batches that are in the table; the others stay logged\n"
        "What to do: make room on the disks of the table, of its quarantine, and of Spark's own files "
        f"(`spark.local.dir`). The next try runs the open batches again. Full log: {fake.log_file}"
    )
    assert fake.log_file.read_text() == OUT_OF_DISK


def test_an_application_that_writes_nothing_gives_its_exit_code_and_not_its_command_line(fake):
    fake.prints("", 3)

    err = fake.failure(**{"spark.hadoop.fs.azure.account.key.lake": "Zm9vYmFyYmF6"})

    assert err.what == "spark-submit failed: it gave no cause and ended with exit code 3"


@pytest.mark.parametrize("ends", ["kill -9 $$", "exit 137"])
def test_an_application_that_was_killed_says_so_whatever_it_logged_before(fake, ends):
    fake.program(
        "spark-submit",
        f"echo '26/11/24 01:11:52 WARN SparkStringUtils: Truncated the string of a plan'; {ends}",
    )

    err = fake.failure()

    assert type(err) is SparkJobFailedError
    assert err.what.startswith("The Spark application was killed from outside, with signal 9")
    assert "spark.driver.memory" in err.do


def test_a_secret_of_the_configuration_is_in_no_error_no_event_and_no_log(fake):
    event = json.dumps({"event": "notice", "seq": 1, "message": "Zm9vYmFyYmF6"})
    fake.prints(f"Zm9vYmFyYmF6 is short\n{EVENT}{event}\nError: bad Zm9vYmFyYmF6\n", 1)

    err = fake.failure(**{"spark.hadoop.fs.azure.account.key.lake": "Zm9vYmFyYmF6", "spark.token": "short"})

    assert err.what == "spark-submit failed: Error: bad ***"
    assert fake.events == [{"event": "notice", "seq": 1, "message": "***"}]
    assert fake.log_file.read_text() == "*** is short\nError: bad ***\n"


@pytest.mark.parametrize(
    "secret", ["message", "failed", "SparkJobFailedError", "airflow-provider-scope", '"seq": 1', "pässword"]
)
def test_a_secret_that_is_a_word_of_an_event_leaves_the_event_whole(fake, secret):
    error = {"type": "SparkJobFailedError", "what": f"no {secret}", "kept": "", "do": ""}
    event = {"event": "failed", "seq": 1, "message": f"a {secret}", "error": error}
    fake.prints(f"{EVENT}{json.dumps(event)}\n", 1)

    fake.failure(**{"spark.hadoop.fs.azure.account.key.lake": secret})

    assert fake.events == [{**event, "message": "a ***", "error": {**error, "what": "no ***"}}]


def test_a_secret_inside_of_a_setting_is_known_by_the_name_before_it():
    options = (
        "-Dhttps.proxyHost=proxy -Djavax.net.ssl.trustStorePassword='two words' -Dmy.client_secret=planted"
    )

    assert submit.secret_values(
        {"spark.driver.extraJavaOptions": options, "spark.hadoop.fs.azure.account.key.lake": "Zm9vYmFyYmF6"}
    ) == ["Zm9vYmFyYmF6", "two words", "planted"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.hadoop.security.credential.provider.path", "jceks://hdfs@nn/etl.jceks"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.example.WebIdentityProvider"),
        ("spark.hadoop.fs.azure.sas.token.provider.type.acme.dfs.core.windows.net", "org.example.Sas"),
        ("spark.hadoop.fs.azure.account.oauth2.token.file.acme.dfs.core.windows.net", "/var/run/token"),
        ("spark.kubernetes.authenticate.driver.oauthTokenFile", "/var/run/token"),
        ("spark.hadoop.hadoop.security.credstore.java-keystore-provider.password-file", "/etc/password"),
        ("spark.kerberos.keytab", "/etc/etl.keytab"),
        ("spark.kubernetes.driver.secrets.lake", "/etc/lake"),
        ("spark.kubernetes.driver.secretKeyRef.LAKE_KEY", "lake:account-key"),
    ],
)
def test_a_setting_that_says_where_a_secret_is_holds_none(name, value):
    assert submit.secret_values({name: value}) == []


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.sas.fixed.token.acme.dfs.core.windows.net",
        "spark.hadoop.my.provider.password",
        "spark.hadoop.fs.azure.account.oauth2.client.secret.acme.dfs.core.windows.net",
        "spark.kubernetes.authenticate.driver.oauthToken",
        "spark.files.password",
        "spark.hadoop.my.secrets.password",
    ],
)
def test_a_setting_with_a_secret_holds_one(name):
    assert submit.secret_values({name: "planted"}) == ["planted"]


def test_a_worker_without_spark_submit_is_told_what_to_install(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    err = fake.failure()

    assert str(err) == (
        "spark-submit cannot be started: No such file or directory: spark-submit.\n"
        "Kept: the batches that are in the table; the others stay logged\n"
        "What to do: install pyspark on the worker; the next run loads the open batches"
    )
    assert not err.is_retryable


@pytest.mark.parametrize("missing", ["pyspark", "delta-spark"])
def test_a_worker_without_a_package_of_spark_is_told_what_to_install(fake, monkeypatch, missing):
    def found(name: str) -> str:
        if name == missing:
            raise PackageNotFoundError(name)
        return "4.2.0"

    monkeypatch.setattr(application, "version", found)

    with pytest.raises(InputError) as caught:
        fake.runner().run(fake.work(), [an_entry(0, a_file("a"))])

    assert str(caught.value) == (
        f"The package {missing} is not installed on the worker, and Spark needs it.\n"
        "Kept: the batches that are in the table; the others stay logged\n"
        "What to do: install it there: `pip check` names the version that this package needs. The next run "
        "loads the open batches"
    )


def test_a_log_that_cannot_be_written_ends_the_application(fake):
    fake.works_on()
    fake.log_file = fake.folder / "output" / "spark.log"
    (fake.folder / "output").write_text("a file, not a folder")
    hook = fake.hook()

    with pytest.raises(SparkJobFailedError) as caught:
        hook.run("main.py", ["the plan"])

    assert hook._submit_sp.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    assert caught.value.what == f"The log of Spark cannot be written: File exists: {fake.folder}/output."


def test_settings_that_java_does_not_start_with_are_told_whole_and_not_tried_again(fake):
    fake.prints(
        "Invalid maximum heap size: -Xmx1 gigabyte\nError: Could not create the Java Virtual Machine.\n"
        "Error: A fatal exception has occurred. Program will exit.\n",
        1,
    )

    err = fake.failure()

    assert str(err) == (
        "Spark does not start: Invalid maximum heap size: -Xmx1 gigabyte\n"
        "Kept: the batches that are in the table; the others stay logged\n"
        "What to do: correct `conf`, `packages` or `jars` of the engine, or the worker's "
        f"spark-defaults.conf; the next run loads the open batches. Full log: {fake.log_file}"
    )
    assert not err.is_retryable


# ---- what the runner makes of it ---------------------------------------------------------------------


def failed_event(kind: str, what: str, kept: str = "k", do: str = "d") -> str:
    error = {"type": kind, "what": what, "kept": kept, "do": do}
    return f"{EVENT}{json.dumps({'event': 'failed', 'error': error})}\n"


def test_the_error_that_the_application_reports_keeps_its_class_and_its_words(fake):
    event = failed_event("SourceFileGoneError", "a.parquet is gone.", kept="the rest", do="put it back")
    fake.prints(f"a stack\n  of Java\n{event}", 1)

    with pytest.raises(SourceFileGoneError) as caught:
        fake.runner().run(fake.work(), [an_entry(0, a_file("a.parquet"))])

    assert str(caught.value) == (
        f"a.parquet is gone.\nKept: the rest\nWhat to do: put it back. Full log: {fake.log_file}"
    )
    assert fake.log_file.read_text() == "a stack\n  of Java\n"


def test_the_full_log_is_no_part_of_the_last_of_several_choices(fake):
    fake.prints(failed_event("BadFileError", "w.", do="one of these:\n- a"), 1)

    with pytest.raises(BadFileError) as caught:
        fake.runner().run(fake.work(), [an_entry(0, a_file("a.parquet"))])

    assert caught.value.do.splitlines() == ["one of these:", "- a", f"Full log: {fake.log_file}"]


def test_a_class_that_this_version_does_not_know_is_a_failed_application(fake):
    fake.prints(failed_event("OfTomorrowError", "w"), 1)

    with pytest.raises(SparkJobFailedError, match="w"):
        fake.runner().run(fake.work(), [an_entry(0, a_file("a.parquet"))])


def test_the_plan_says_which_batch_can_be_the_first_in_the_table(fake):
    fake.program("spark-submit", f"cp {fake.folder}/checkpoint/plans/* {fake.folder}/seen")

    fake.runner().run(replace(fake.work(), first=3), [])

    assert decode((fake.folder / "seen").read_bytes()).first == 3


def test_the_plan_is_there_while_the_application_runs_and_gone_after_it_failed(fake):
    fake.program("spark-submit", "for last; do :; done\ncat ${last#file://}\nexit 1")
    runner = fake.runner()

    with pytest.raises(SparkJobFailedError):
        runner.run(fake.work(), [an_entry(4, a_file("a.parquet"))])

    assert '"batches": [4]' in fake.log_file.read_text()
    assert list((fake.folder / "checkpoint" / "plans").iterdir()) == []


BATCH = '{"event": "batch", "seq": %d, "what": "1 file", "version": %d, "seconds": 1.0}'


def test_a_batch_that_was_given_to_a_scope_job_meanwhile_is_not_run(fake):
    fake.prints("", 0)
    work, runner = fake.work(), fake.runner()
    CheckpointLog(runner.storage, work.checkpoint).put(Attempt(seq=7, number=0, table_version=3))

    with pytest.raises(InputError, match=r"Batch 7 of .* is open and has SCOPE jobs"):
        runner.run(work, [an_entry(7, a_file("a.parquet"))])

    assert not fake.log_file.exists()
    assert not list((fake.folder / "checkpoint" / "plans").iterdir())


def test_a_process_that_fails_when_all_batches_are_done_leaves_it_to_the_table(fake):
    done = "".join(f"{EVENT}{BATCH % (seq, seq)}\n" for seq in (0, 1))
    fake.prints(f"{done}Error: the cluster did not say goodbye\n", 1)

    fake.runner().run(fake.work(), [an_entry(0, a_file("a")), an_entry(1, a_file("b"))])


def test_a_process_that_fails_before_the_last_batch_is_done_fails(fake):
    fake.prints(f"{EVENT}{BATCH % (0, 0)}\nError: the cluster went away\n", 1)

    with pytest.raises(SparkJobFailedError, match="the cluster went away"):
        fake.runner().run(fake.work(), [an_entry(0, a_file("a")), an_entry(1, a_file("b"))])


def test_an_error_that_is_reported_after_the_last_batch_is_raised(fake):
    fake.prints(f"{EVENT}{BATCH % (0, 0)}\n{failed_event('SourceFileChangedError', 'w')}", 1)

    with pytest.raises(SourceFileChangedError):
        fake.runner().run(fake.work(), [an_entry(0, a_file("a"))])


def test_a_plan_that_cannot_be_deleted_hides_no_result_and_no_error(fake, monkeypatch):
    def busy(self: LocalStorage, uri: str) -> None:
        raise StorageError("the disk is away")

    monkeypatch.setattr(LocalStorage, "delete", busy)
    fake.prints(f"{EVENT}{BATCH % (0, 0)}\n", 0)
    fake.runner().run(fake.work(), [an_entry(0, a_file("a"))])

    fake.prints("Error: no memory\n", 1)
    with pytest.raises(SparkJobFailedError, match="no memory"):
        fake.runner().run(fake.work(), [an_entry(0, a_file("a"))])


# ---- how it ends -------------------------------------------------------------------------------------


ENDED = "The Spark application was ended, because the task was killed or ran out of time."


def test_cancel_ends_the_application_with_its_children(fake):
    fake.works_on()
    runner = fake.runner()
    finish = in_a_thread(lambda: runner.run(fake.work(), [an_entry(0, a_file("a.parquet"))]))
    fake.wait_until_both_run()

    runner.cancel()

    fake.wait_until_none_runs()
    err = finish()
    assert isinstance(err, SparkJobFailedError)
    assert str(err) == (
        f"{ENDED}\n"
        "Kept: the batches that are in the table; the others stay logged\n"
        f"What to do: the next try runs the open batches again. Full log: {fake.log_file}"
    )


def test_an_application_that_does_not_listen_is_killed(fake, monkeypatch):
    monkeypatch.setattr(submit, "END_SECONDS", 0.0)
    fake.works_on("trap '' TERM")
    hook = fake.hook()
    finish = in_a_thread(lambda: hook.run("main.py", ["the plan"]))
    fake.wait_until_both_run()

    hook.end()

    fake.wait_until_none_runs()
    assert finish().what == ENDED


def test_a_child_that_does_not_listen_is_killed_when_its_parent_has_ended(fake):
    fake.program(
        "spark-submit", f"exec 9>{fake.fifo}\n(trap '' TERM; echo both >&9; sleep 600; sleep 600) &\nwait"
    )
    hook = fake.hook()
    finish = in_a_thread(lambda: hook.run("main.py", ["the plan"]))
    fake.wait_until_both_run()

    hook.end()

    fake.wait_until_none_runs()
    assert finish().what == ENDED


def test_an_application_ended_on_request_does_not_blame_what_it_said_while_it_ended(fake):
    event = failed_event("SqlError", "gateway gone").strip()
    fake.program(
        "spark-submit",
        f"exec 9>{fake.fifo}\ntrap \"echo '{event}'; kill $!; exit 1\" TERM\n"
        "sleep 600 &\necho both >&9\nwait",
    )
    runner = fake.runner()
    finish = in_a_thread(lambda: runner.run(fake.work(), [an_entry(0, a_file("a.parquet"))]))
    fake.wait_until_both_run()

    runner.cancel()

    assert finish().what == ENDED


def test_an_application_that_was_cancelled_before_it_started_never_starts(fake):
    fake.program("spark-submit", f"touch {fake.folder}/started")
    runner = fake.runner()

    runner.cancel()
    with pytest.raises(SparkJobFailedError, match="was ended"):
        runner.run(fake.work(), [an_entry(0, a_file("a.parquet"))])

    assert not (fake.folder / "started").exists()


def test_a_task_that_runs_out_of_time_takes_its_application_with_it(fake):
    """Airflow calls on_kill only after the timeout has left execute: by then the operator holds no runner."""
    fake.works_on(f'echo \'{EVENT}{{"event": "started"}}\'')

    def out_of_time(event: Any) -> None:
        fake.wait_until_both_run()
        raise AirflowTaskTimeout

    hook = SubmitHook(conn_id=None, conf={}, log_file=fake.log_file, on_event=out_of_time)
    with pytest.raises(AirflowTaskTimeout):
        hook.run("main.py", ["the plan"])

    fake.wait_until_none_runs()


def test_on_kill_ends_the_application_and_the_batch_stays_logged(fake, tmp_path):
    fake.works_on()
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.txt").write_text("a row")
    os.utime(tmp_path / "landing" / "a.txt", (1, 1))
    operator = DeltaIncrementalIngestOperator(
        task_id="ingest",
        delta_location=str(tmp_path / "table"),
        source=FileSource(roots=str(tmp_path / "landing"), patterns=r"\.txt$", format="text"),
    )
    ti = SimpleNamespace(dag_id="killed", run_id="one", task_id="ingest", map_index=-1, try_number=1)
    finish = in_a_thread(lambda: operator.execute({"ti": ti}))
    fake.wait_until_both_run()

    operator.on_kill()

    fake.wait_until_none_runs()
    assert finish().what == ENDED
    files = {str(p.relative_to(tmp_path / "table")) for p in (tmp_path / "table").rglob("*") if p.is_file()}
    assert files == {"_checkpoint/pipeline.json", "_checkpoint/offsets/00000000000000000000"}


def test_on_kill_without_an_application_does_nothing():
    operator = DeltaIncrementalIngestOperator(
        task_id="ingest", delta_location="/table", source={"roots": "/in", "format": "parquet"}
    )

    operator.on_kill()

    assert operator._runner is None


def test_the_real_program_is_where_the_hook_looks_for_it():
    assert shutil.which("spark-submit", path=str(Path(sys.executable).parent))


def test_a_quarantine_on_another_store_is_left_alone(fake):
    """The table was moved from there: each run asked Spark for a store that it does not reach."""
    work = fake.work()
    log = CheckpointLog(LocalStorage(), work.checkpoint)
    log.use_quarantine("abfss://lake@acme.dfs.core.windows.net/table_quarantine")
    log.use_quarantine(f"{work.table}_quarantine")

    assert fake.runner().plan(work, [an_entry(0)], fence=False).quarantines == (f"{work.table}_quarantine",)


def test_settings_that_spark_takes_only_at_its_start_are_said_over_the_defaults(fake):
    fake.program("spark-submit", 'for last; do case "$last" in *.conf) grep spark.files "$last";; esac; done')

    fake.runner().run(fake.work(), [an_entry(0, a_file("a"))])

    assert fake.log_file.read_text().splitlines() == [
        "spark.files.ignoreCorruptFiles=false",
        "spark.files.ignoreMissingFiles=false",
    ]


@pytest.mark.parametrize("before", ["", "trap '' TERM"])
def test_an_application_ends_when_its_worker_is_killed(fake, before):
    fake.works_on(before)
    worker = os.fork()
    if not worker:
        try:
            fake.hook().run("main.py", ["the plan"])
        finally:
            os._exit(0)
    fake.wait_until_both_run()

    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)

    fake.wait_until_none_runs()
