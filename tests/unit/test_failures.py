"""What Spark says of a failure: whether another try helps, and which lines hold the cause."""

from __future__ import annotations

import pytest

from airflow_provider_scope.failures import kind_of, passing_advice, submit_cause

DIVISION = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
JOB = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (DIVISION, "sql"),
        (f"{JOB}\nCaused by: org.apache.spark.SparkArithmeticException: {DIVISION}\n\tat x", "sql"),
        (
            "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] 'x1'. SQLSTATE: 22018",
            "sql",
        ),
        ("[USER_RAISED_EXCEPTION] no\nSQLSTATE: P0001", "sql"),
        ("[DELTA_REPLACE_WHERE_MISMATCH] Written data does not conform\nSQLSTATE: 44000", "sql"),
        ("[TASK_WRITE_FAILED] SQLSTATE: 58030\nDeltaInvariantViolationException: [DELTA_VIOLATE_…]", "sql"),
        ("[INVALID_PARAMETER_VALUE.CHARSET] but got klingon. SQLSTATE: 22023", "sql"),
        ("[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'many' is invalid. SQLSTATE: 22022", "setting"),
        (
            "[INVALID_DRIVER_MEMORY] System memory 104857600 must be at least 471859200. SQLSTATE: F0000",
            "setting",
        ),
        ("org.apache.spark.SparkException: header flag can be true or false.", "setting"),
        ("java.lang.NumberFormatException: Size must be specified as bytes (b), kibibytes (k)", "setting"),
        ("org.apache.spark.SparkException: Executor memory must be a positive number", "setting"),
        ("java.lang.ClassNotFoundException: no.such.Serializer", "setting"),
        ("org.apache.spark.SparkException: Must specify the driver container image", "setting"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03", "not seen"),
        ("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file a. SQLSTATE: KD001", "passing"),
        (f"{JOB}: java.lang.OutOfMemoryError: Java heap space", "passing"),
        ("[INTERNAL_ERROR] something. SQLSTATE: XX000", "passing"),
        ("java.lang.IllegalArgumentException: java.net.UnknownHostException: namenode", "passing"),
        ("", "passing"),
    ],
)
def test_only_a_failure_that_may_pass_is_tried_again(text, kind):
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        (
            "Checksum error: file:/t/_delta_log/00000000000000000001.json at 1024",
            "restore 00000000000000000001.json from a copy. If there is none, and it is the table's newest",
        ),
        (
            "Checksum error: file:/t/part-0.parquet at 0",
            "restore part-0.parquet, with the .part-0.parquet.crc",
        ),
        ("No space left on device", "make room on the disks of the table, of its quarantine"),
        (
            "java.nio.file.FileSystemException: /t/0.json -> /t/.0.json.tmp: Operation not permitted",
            "its file system has no hard links",
        ),
        ("Connection reset", "the next try runs the open batches again; if the error comes back"),
    ],
)
def test_what_helps_is_said_of_a_cause_that_is_known(cause, advice):
    assert passing_advice(cause).startswith(advice)


def test_the_last_condition_decides_because_it_is_the_innermost():
    text = f"[FAILED_READ_FILE.NO_HINT] reading a. SQLSTATE: KD001\nCaused by: x: {DIVISION}"

    assert kind_of(text) == "sql"


@pytest.mark.parametrize(
    ("lines", "cause", "is_lasting"),
    [
        (
            (
                "Invalid maximum heap size: -Xmx1 gigabyte\n"
                "Error: Could not create the Java Virtual Machine.\n"
                "Error: A fatal exception has occurred. Program will exit."
            ),
            "Java does not start: Invalid maximum heap size: -Xmx1 gigabyte",
            True,
        ),
        (
            "Error occurred during initialization of VM\nToo small maximum heap",
            "Java does not start: Too small maximum heap",
            True,
        ),
        (
            (
                "Picked up JAVA_TOOL_OPTIONS: -Dpassword=x\nUnrecognized VM option 'NoSuch'\n"
                "Did you mean '(+/-)Such'?\nError: Could not create the Java Virtual Machine.\n"
                "Error: A fatal exception has occurred. Program will exit."
            ),
            "Java does not start: Unrecognized VM option 'NoSuch' Did you mean '(+/-)Such'?",
            True,
        ),
        (
            (
                "Error occurred during initialization of VM\n"
                "Could not reserve enough space for 943718400KB object heap"
            ),
            "Java does not start: Could not reserve enough space for 943718400KB object heap",
            False,
        ),
        (
            (
                "Traceback (most recent call last):\n  File x\n"
                "py4j.protocol.Py4JJavaError: An error occurred while calling None.JavaSparkContext.\n"
                ": org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] System memory 1 "
                "must be at least 4.\nPlease increase heap size using the --driver-memory option. "
                "SQLSTATE: F0000\n"
                "\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(Unified.scala:473)"
            ),
            (
                "[INVALID_DRIVER_MEMORY] System memory 1 must be at least 4. Please increase heap size using "
                "the --driver-memory option. SQLSTATE: F0000"
            ),
            True,
        ),
        (
            (
                'Exception in thread "main" org.apache.spark.SparkException: Executor memory must be a '
                "positive number"
                "\n\tat org.apache.spark.deploy.SparkSubmitArguments.error(x)"
            ),
            "Executor memory must be a positive number",
            True,
        ),
        (
            (
                "26/11/21 16:10:57 ERROR SparkContext: Error initializing SparkContext.\n"
                "java.io.IOException: No space left on device\n\tat java.base/x\n"
                "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)"
            ),
            "java.io.IOException: No space left on device",
            False,
        ),
        (
            (
                "java.lang.RuntimeException: it did not work\n\tat a\nCaused by: java.net.ConnectException: "
                "Connection refused\n\tat b\n\t... 3 more"
            ),
            "java.lang.RuntimeException: it did not work; java.net.ConnectException: Connection refused",
            False,
        ),
        (
            (
                "26/11/22 12:58:48 ERROR DeltaFileFormatWriter: Aborting job 5\n"
                "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\n"
                "\tat org.apache.spark.util.SparkErrorUtils.tryWithSafeFinally(SparkErrorUtils.scala:83)\n"
                "Caused by: java.lang.OutOfMemoryError: Java heap space\n"
                "\tat org.apache.spark.util.SparkErrorUtils.tryWithSafeFinally(SparkErrorUtils.scala:83)"
            ),
            "java.lang.OutOfMemoryError: Java heap space; [TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030",
            False,
        ),
        (
            (
                "java.lang.OutOfMemoryError: Java heap space\n\tat x\n"
                "org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down\n\tat x"
            ),
            "java.lang.OutOfMemoryError: Java heap space; Job 0 cancelled because SparkContext was shut down",
            False,
        ),
        (
            (
                "26/11/27 14:49:21 ERROR ApplicationMaster: Uncaught exception: \n"
                "org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat x\n"
                'Caused by: java.io.IOException: Cannot run program "/no/python": error=2, No such file\n'
                "\tat x\nCaused by: java.io.IOException: error=2, No such file\n\tat x"
            ),
            (
                "Exception thrown in awaitResult:; java.io.IOException: Cannot run program "
                '"/no/python": error=2, No such file'
            ),
            True,
        ),
        ("Error: it is bad", "Error: it is bad", False),
        (
            "ModuleNotFoundError: No module named 'delta'",
            "ModuleNotFoundError: No module named 'delta'",
            False,
        ),
        ("one\ntwo", "two", False),
        ("one\n26/11/24 01:11:52 WARN Utils: two", "one", False),
        ("26/11/24 01:11:52 WARN Utils: one", "", False),
        ("", "", False),
        (
            "RuntimeError: Spark's driver runs in Python 3.9.2 here, and needs 3.11 or newer",
            "RuntimeError: Spark's driver runs in Python 3.9.2 here, and needs 3.11 or newer",
            True,
        ),
        (
            'Exception in thread "main" org.apache.hadoop.yarn.YarnException: to unknown queue: c',
            "org.apache.hadoop.yarn.YarnException: to unknown queue: c",
            True,
        ),
    ],
)
def test_the_cause_of_a_process_that_could_not_report_it(lines, cause, is_lasting):
    assert submit_cause(lines.splitlines()) == (cause, is_lasting)
