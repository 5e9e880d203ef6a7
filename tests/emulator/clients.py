"""Clients of WebHDFS that others wrote, behind one small interface.

``names`` gives what a folder holds: name -> length, None for a folder. ``length`` does the same for one
path. ``Missing`` and ``Refused`` are what a client raises for a path that is not there, and for one that
it may not use. fsspec 2026.9 cannot append: it forgets the
address that it was led to.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import hdfs
from azure.datalake import store as adls
from fsspec.implementations.webhdfs import WebHDFS
from pywebhdfs import errors
from pywebhdfs.webhdfs import PyWebHdfsClient


def _length(status: dict[str, Any]) -> int | None:
    return status["length"] if status["type"] == "FILE" else None


class Fsspec:
    Missing = FileNotFoundError
    Refused = (PermissionError, RuntimeError)

    def __init__(self, port: int) -> None:
        self.fs = WebHDFS(
            "127.0.0.1", port=port, user="u", use_listings_cache=False, skip_instance_cache=True
        )

    def names(self, path: str) -> dict[str, int | None]:
        return {
            entry["name"].rpartition("/")[2]: _length(entry | {"type": entry["type"].upper()})
            for entry in self.fs.ls(path, detail=True)
        }

    def length(self, path: str) -> int | None:
        found = self.fs.info(path)
        return found["size"] if found["type"] == "file" else None

    def exists(self, path: str) -> bool:
        return self.fs.exists(path)

    def read(self, path: str, start: int, end: int) -> bytes:
        return self.fs.cat_file(path, start=start, end=end)

    def write(self, path: str, data: bytes) -> None:
        with self.fs.open(path, "wb") as file:
            file.write(data)

    def mkdirs(self, path: str) -> None:
        self.fs.makedirs(path, exist_ok=True)

    def rename(self, path: str, target: str) -> None:
        self.fs.mv(path, target)

    def delete(self, path: str, *, recursive: bool) -> None:
        self.fs.rm(path, recursive=recursive)


class HdfsCli:
    """``hdfs`` of PyPI."""

    Missing = Refused = hdfs.HdfsError

    def __init__(self, port: int) -> None:
        self.client = hdfs.InsecureClient(f"http://127.0.0.1:{port}", user="u")

    def names(self, path: str) -> dict[str, int | None]:
        return {name: _length(status) for name, status in self.client.list(path, status=True)}

    def length(self, path: str) -> int | None:
        return _length(self.client.status(path))

    def exists(self, path: str) -> bool:
        return self.client.status(path, strict=False) is not None

    def read(self, path: str, start: int, end: int) -> bytes:
        with self.client.read(path, offset=start, length=end - start) as reader:
            return reader.read()

    def write(self, path: str, data: bytes) -> None:
        self.client.write(path, data=data)

    def append(self, path: str, data: bytes) -> None:
        self.client.write(path, data=data, append=True)

    def mkdirs(self, path: str) -> None:
        self.client.makedirs(path)

    def rename(self, path: str, target: str) -> None:
        self.client.rename(path, target)

    def delete(self, path: str, *, recursive: bool) -> None:
        self.client.delete(path, recursive=recursive)


class PyWebHdfs:
    Missing = errors.FileNotFound
    Refused = errors.PyWebHdfsException

    def __init__(self, port: int) -> None:
        self.client = PyWebHdfsClient(host="127.0.0.1", port=str(port), user_name="u")

    def names(self, path: str) -> dict[str, int | None]:
        found = self.client.list_dir(path)["FileStatuses"]["FileStatus"]
        return {status["pathSuffix"]: _length(status) for status in found}

    def length(self, path: str) -> int | None:
        return _length(self.client.get_file_dir_status(path)["FileStatus"])

    def exists(self, path: str) -> bool:
        return self.client.exists_file_dir(path)

    def read(self, path: str, start: int, end: int) -> bytes:
        return self.client.read_file(path, offset=start, length=end - start)

    def write(self, path: str, data: bytes) -> None:
        self.client.create_file(path, data)

    def append(self, path: str, data: bytes) -> None:
        self.client.append_file(path, data)

    def mkdirs(self, path: str) -> None:
        self.client.make_dir(path)

    def rename(self, path: str, target: str) -> None:
        self.client.rename_file_dir(path, target)

    def delete(self, path: str, *, recursive: bool) -> None:
        self.client.delete_file_dir(path, recursive=recursive)


class AzureSdk:
    """``azure-datalake-store``; it speaks https alone, so the emulator has a certificate."""

    Missing = FileNotFoundError
    Refused = (PermissionError, adls.exceptions.DatalakeRESTException)

    def __init__(self, port: int) -> None:
        # Its address is https://<store>.<suffix>/.
        self.fs = adls.core.AzureDLFileSystem(
            token_credential=bearer(), store_name="127", url_suffix=f"0.0.1:{port}"
        )

    def names(self, path: str) -> dict[str, int | None]:
        found = self.fs.ls(path, detail=True, invalidate_cache=True)
        return {entry["name"].rpartition("/")[2]: _length(entry) for entry in found}

    def length(self, path: str) -> int | None:
        return _length(self.fs.info(path, invalidate_cache=True))

    def exists(self, path: str) -> bool:
        return self.fs.exists(path, invalidate_cache=True)

    def read(self, path: str, start: int, end: int) -> bytes:
        return self.fs.read_block(path, start, end - start)

    def write(self, path: str, data: bytes) -> None:
        with self.fs.open(path, "wb") as file:
            file.write(data)

    def append(self, path: str, data: bytes) -> None:
        with self.fs.open(path, "ab") as file:
            file.write(data)

    def mkdirs(self, path: str) -> None:
        self.fs.mkdir(path)

    def rename(self, path: str, target: str) -> None:
        self.fs.mv(path, target)

    def delete(self, path: str, *, recursive: bool) -> None:
        self.fs.rm(path, recursive=recursive)


_DELEGATE = """
import org.apache.hadoop.shaded.javax.ws.rs.core.Application;
import org.apache.hadoop.shaded.javax.ws.rs.core.Link;
import org.apache.hadoop.shaded.javax.ws.rs.core.MediaType;
import org.apache.hadoop.shaded.javax.ws.rs.core.Response;
import org.apache.hadoop.shaded.javax.ws.rs.core.UriBuilder;
import org.apache.hadoop.shaded.javax.ws.rs.core.Variant;
import org.apache.hadoop.shaded.javax.ws.rs.ext.RuntimeDelegate;

public class Delegate extends RuntimeDelegate implements RuntimeDelegate.HeaderDelegate {
    public Object fromString(String text) {
        String[] parts = text.split(";")[0].trim().split("/");
        return new MediaType(parts[0], parts[1]);
    }
    public String toString(Object value) { throw new UnsupportedOperationException(); }
    public RuntimeDelegate.HeaderDelegate createHeaderDelegate(Class type) { return this; }
    public Object createEndpoint(Application application, Class type) {
        throw new UnsupportedOperationException();
    }
    public UriBuilder createUriBuilder() { throw new UnsupportedOperationException(); }
    public Response.ResponseBuilder createResponseBuilder() { throw new UnsupportedOperationException(); }
    public Variant.VariantListBuilder createVariantListBuilder() {
        throw new UnsupportedOperationException();
    }
    public Link.Builder createLinkBuilder() { throw new UnsupportedOperationException(); }
}
"""
"""What reads a ``Content-Type`` for Hadoop's client: its jar looks for a class that it does not hold."""


class Hadoop:
    """``webhdfs://`` of Hadoop's own client, in the JVM of Spark."""

    def __init__(self, port: int, spark: Any) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        # Spark's Python makes errors of its own of some of Java's.
        self.Missing = self.Refused = (Py4JJavaError, PySparkException)
        self.jvm = spark._jvm
        compiler = self.jvm.org.codehaus.janino.SimpleCompiler()
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        compiler.setParentClassLoader(loader)
        compiler.cook(_DELEGATE)
        made = compiler.getClassLoader().loadClass("Delegate")
        delegates = self.jvm.org.apache.hadoop.shaded.javax.ws.rs.ext.RuntimeDelegate
        delegates.setInstance(made.getDeclaredConstructor(None).newInstance(None))
        self.fs = self.jvm.org.apache.hadoop.fs.FileSystem.newInstance(
            self.jvm.java.net.URI(f"webhdfs://127.0.0.1:{port}"),
            self.jvm.org.apache.hadoop.conf.Configuration(),
        )

    def path(self, path: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(path)

    def names(self, path: str) -> dict[str, int | None]:
        found = self.fs.listStatus(self.path(path))
        return {status.getPath().getName(): self._length(status) for status in found}

    def length(self, path: str) -> int | None:
        return self._length(self.fs.getFileStatus(self.path(path)))

    def _length(self, status: Any) -> int | None:
        return status.getLen() if status.isFile() else None

    def exists(self, path: str) -> bool:
        return self.fs.exists(self.path(path))

    def read(self, path: str, start: int, end: int) -> bytes:
        stream = self.fs.open(self.path(path))
        stream.seek(start)
        data = stream.readNBytes(end - start)
        stream.close()
        return bytes(data)

    def write(self, path: str, data: bytes) -> None:
        self._send(self.fs.create(self.path(path), True), data)  # noqa: FBT003 - Java has no keywords

    def append(self, path: str, data: bytes) -> None:
        self._send(self.fs.append(self.path(path)), data)

    def _send(self, stream: Any, data: bytes) -> None:
        stream.write(bytearray(data))
        stream.close()

    def mkdirs(self, path: str) -> None:
        self.fs.mkdirs(self.path(path))

    def rename(self, path: str, target: str) -> None:
        self.fs.rename(self.path(path), self.path(target))

    def delete(self, path: str, *, recursive: bool) -> None:
        self.fs.delete(self.path(path), recursive)


def bearer() -> Any:
    """A credential with a token that is good for an hour."""
    return SimpleNamespace(
        get_token=lambda *_, **__: SimpleNamespace(token="x", expires_on=int(time.time()) + 3600)
    )
