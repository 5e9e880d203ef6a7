"""How Delta makes a commit on a disk and on S3: once, whoever else commits the same version.

Delta 4.4 has classes for both that lock a commit within one JVM. In two of them, both may find that a version
is not there; the second one replaces what the first has put there (``HDFSLogStore`` on a disk, where a rename
is two steps, and ``S3SingleDriverLogStore``). The classes here leave it to the disk and to S3 to refuse that.
Spark's own compiler makes them in the driver: there is no jar to fetch, and none to trust.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from airflow_provider_scope.spark.session import DELTA_LOG, compiler_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE = "airflow_provider_scope"
_CLASSES = {"file": "LinkingLogStore", "s3": "ConditionalLogStore"}
"""Scheme of a table -> our class."""
_OF_ALL_SCHEMES = "spark.delta.logStore.class"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_RENAMING = [f"{_STREAMING}.{part}FileSystemBasedCheckpointFileManager" for part in ("checkpointing.", "")]
"""Spark's class that gives a file its name by one rename, since 4.1 and before."""

_BASES = {"LinkingLogStore": "HDFSLogStore", "ConditionalLogStore": "S3SingleDriverLogStore"}
"""Our class -> Delta's, which does all but what makes a commit."""
_SOURCE = """
package airflow_provider_scope;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Path;

public class $name extends io.delta.storage.$base {
    public $name(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, conf);
            return;
        }
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            text.write(((String) actions.next() + "\\n").getBytes("UTF-8"));
        }
        create(path, text.toByteArray(), conf);
    }

    $create
}
"""
_CREATE = {
    # A complete file gets its name by a hard link: that refuses a name that exists, and shows all at once.
    "LinkingLogStore": """
    private void create(Path path, byte[] text, Configuration conf) throws IOException {
        File file = new File(path.toUri().getPath());
        File complete = new File(file.getParent(), "." + file.getName() + "." + UUID.randomUUID() + ".tmp");
        try {
            FileOutputStream stream = new FileOutputStream(complete);
            try {
                stream.write(text);
                stream.getFD().sync();
            } finally {
                stream.close();
            }
            Files.createLink(file.toPath(), complete.toPath());
        } finally {
            complete.delete();
        }
    }
""",
    # Hadoop's client can ask S3 to refuse what exists, since 3.4.2, but does so only if it is told: one that
    # does not know the option refuses it.
    "ConditionalLogStore": """
    private void create(Path path, byte[] text, Configuration conf) throws IOException {
        FSDataOutputStreamBuilder builder = path.getFileSystem(conf).createFile(path);
        builder.recursive();
        builder.overwrite(false);
        builder.must("fs.option.create.conditional.overwrite", true);
        try {
            FSDataOutputStream stream = (FSDataOutputStream) builder.build();
            stream.write(text);
            stream.close();
        } catch (IOException err) {
            String kind = err.getClass().getSimpleName();
            if (kind.equals("RemoteFileChangedException") || kind.equals("FileAlreadyExistsException")) {
                throw new FileAlreadyExistsException(path.toString());
            }
            throw err;
        }
    }
""",
}


def use(spark: SparkSession, table: str) -> None:
    """Let Delta commit to a table by our class for its store, unless the user has named another one.

    :param table: Canonical URI.
    """
    scheme = table.partition("://")[0]
    setting = f"spark.delta.logStore.{scheme}.impl"
    conf: Any = spark.sparkContext._jsc.sc().conf()  # which Delta asks
    if scheme not in _CLASSES or conf.contains(setting) or conf.contains(_OF_ALL_SCHEMES):
        return
    load_class(spark, _CLASSES[scheme])
    conf.set(setting, f"{_PACKAGE}.{_CLASSES[scheme]}")
    # In a session of the user's own, Delta may have tables at hand with the class that it had before.
    getattr(spark._jvm, DELTA_LOG).clearCache()


def session_settings(spark: SparkSession, table: str) -> dict[str, str]:
    """Return settings for the sessions that commit to a table.

    Beside each commit, Delta writes a file of checksums. On a disk, Hadoop's ``FileContext`` starts a
    program, ``readlink``, eight times to give it its name: about a sixth of the work of a small commit.
    """
    names = [name for name in _RENAMING if table.startswith("file:") and _class(spark, name)]
    return {_MANAGER: names[0]} if names else {}


def _loader(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _class(spark: SparkSession, name: str) -> Any:
    """Load a class; None if Java has none of this name."""
    with suppress(Py4JJavaError):
        return _loader(spark).loadClass(name)
    return None


def load_class(spark: SparkSession, name: str) -> Any:
    """Load one of our classes where Delta looks for it, and return it.

    It is compiled once: an application before this one, in the same JVM, may have done it.
    """
    full_name = f"{_PACKAGE}.{name}"
    if loaded := _class(spark, full_name):
        return loaded
    source = Template(_SOURCE).substitute(name=name, base=_BASES[name], create=_CREATE[name].strip())
    compiler = compiler_of(spark, source)
    with tempfile.TemporaryDirectory(prefix="airflow-provider-scope-classes-") as folder:
        file = Path(folder, _PACKAGE, f"{name}.class")
        file.parent.mkdir()
        file.write_bytes(bytes(compiler.getBytecodes()[full_name]))
        _loader(spark).addURL(spark._jvm.java.io.File(folder).toURI().toURL())  # type: ignore[union-attr]
        return _loader(spark).loadClass(full_name)
