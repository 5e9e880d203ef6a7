"""A real HDFS on loopback: Hadoop's own namenode and datanode, of the version that pyspark has."""

from __future__ import annotations

import atexit
import functools
import getpass
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import requests

from airflow_provider_scope.hooks.stores import hadoop_version
from tests.support.jars import HOME, fetch, java
from tests.support.kept import kept

SOURCE = Path(__file__).with_name("Hdfs.java")
USER = getpass.getuser()


def install() -> Path:
    """Return the jar with Hadoop's servers below the virtual environment; fetch it if it is not there.

    :raises RuntimeError: Spark could not resolve it.
    """
    name = f"hadoop-client-minicluster-{hadoop_version()}.jar"

    def fetched(folder: Path) -> Path:
        fetch(f"org.apache.hadoop:hadoop-client-minicluster:{hadoop_version()}", cache=folder)
        return folder / "jars" / f"org.apache.hadoop_{name}"

    return kept(name, fetched)


class Hdfs:
    """Where the namenode's HTTP service is; files are put and read without this package.

    `uri` is where Hadoop's own clients find it.
    """

    def __init__(self, port: int, own_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.authority = f"127.0.0.1:{port}"
        self.uri = f"hdfs://127.0.0.1:{own_port}"
        self.session = requests.Session()
        self.session.trust_env = False

    def call(
        self, method: str, path: str, op: str, data: bytes | None = None, **parameters: str
    ) -> requests.Response:
        """Send one request as the tests' user, and follow it to the datanode."""
        answer = self.session.request(
            method,
            f"{self.url}/webhdfs/v1{quote(path)}",
            params={"op": op, "user.name": USER, **parameters},
            data=data,
            timeout=60,
        )
        answer.raise_for_status()
        return answer

    def make_folder(self, path: str, owner: str, permission: str = "755") -> None:
        """Create a folder that belongs to somebody."""
        self.call("PUT", path, "MKDIRS", permission=permission)
        self.call("PUT", path, "SETOWNER", owner=owner)

    def put(self, path: str, data: bytes, modified_ms: int) -> None:
        """Create a file with a modification time."""
        self.call("PUT", path, "CREATE", data, overwrite="true")
        self.call("PUT", path, "SETTIMES", modificationtime=str(modified_ms))

    def copy(self, path: str, folder: Path) -> Path:
        """Copy a folder to a disk, where Delta's own readers open it, and give the copy."""
        folder.mkdir(parents=True)
        for status in self.call("GET", path, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]:
            name = status["pathSuffix"]
            if status["type"] == "DIRECTORY":
                self.copy(f"{path}/{name}", folder / name)
            else:
                (folder / name).write_bytes(self.call("GET", f"{path}/{name}", "OPEN").content)
        return folder


@functools.cache
def start() -> Hdfs:
    """Start the cluster; it ends with this process."""
    jar = install()
    folder = tempfile.mkdtemp(prefix="airflow-provider-scope-hdfs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log = Path(folder, "log")
    server = subprocess.Popen(
        [java(), "-Xmx512m", "-cp", f"{jar}:{HOME}/jars/*", SOURCE, f"{folder}/data"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
    )
    atexit.register(server.wait)
    atexit.register(server.stdin.close)
    for line in server.stdout:
        ports = re.fullmatch(r"ports (\d+) (\d+)\n", line)
        if ports:
            return Hdfs(int(ports[1]), int(ports[2]))
    msg = f"HDFS did not start: {log.read_text()[-2000:]}"
    raise RuntimeError(msg)
