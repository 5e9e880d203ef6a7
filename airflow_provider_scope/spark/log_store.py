"""Delta's commits on S3: each is one PutObject, which the store refuses if the version is there.

Delta 4.4 has a class for S3 that locks a commit within one JVM, and then writes over whatever another one has
put there. Hadoop's client can ask S3 to refuse that, since 3.4.2, but does so only if it is told. So a class
tells it. Spark's own compiler makes it in the driver: there is no jar to fetch, and none to trust.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.delta.logStore.s3.impl"
NAME = "airflow_provider_scope.ConditionalLogStore"
"""The value of the setting; with another one, such as a class of the user's own, nothing is done here."""

_SOURCE = """
package airflow_provider_scope;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Path;

public class ConditionalLogStore extends io.delta.storage.S3SingleDriverLogStore {
    public ConditionalLogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, conf);
            return;
        }
        // All of it first: a stream that is closed by an error would publish a part.
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            text.write(((String) actions.next() + "\\n").getBytes("UTF-8"));
        }
        FSDataOutputStreamBuilder builder = path.getFileSystem(conf).createFile(path);
        builder.recursive();
        builder.overwrite(false);
        // A client that does not know it refuses it.
        builder.must("fs.option.create.conditional.overwrite", true);
        try {
            FSDataOutputStream stream = (FSDataOutputStream) builder.build();
            stream.write(text.toByteArray());
            stream.close();
        } catch (IOException err) {
            String kind = err.getClass().getSimpleName();
            if (kind.equals("RemoteFileChangedException") || kind.equals("FileAlreadyExistsException")) {
                throw new java.nio.file.FileAlreadyExistsException(path.toString());
            }
            throw err;
        }
    }
}
"""


def load(spark: SparkSession) -> None:
    """Give Delta the class that it is told to use on S3, before it looks for it."""
    if spark.conf.get(SETTING, None) != NAME:
        return
    jvm: Any = spark._jvm  # noqa: SLF001 - no Python API
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE)
    folder = Path(tempfile.mkdtemp(prefix="airflow-provider-scope-classes-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package, _, name = NAME.rpartition(".")
    (folder / package).mkdir()
    (folder / package / f"{name}.class").write_bytes(bytes(compiler.getBytecodes()[NAME]))
    loader.addURL(jvm.java.io.File(str(folder)).toURI().toURL())
