"""A real YARN on loopback: Hadoop's own resource manager and node manager, beside a real HDFS."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.real_airflow.postgres import free_port
from tests.support import hdfs
from tests.support.jars import HOME, fetch, java
from tests.support.kept import kept

SOURCE = Path(__file__).with_name("Yarn.java")

CERTIFICATES = "org.bouncycastle:bcpkix-jdk18on:1.82"
"""The resource manager needs its classes when it starts; Hadoop's jar of servers is without them."""

STARTS_FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

MEMORY_MB = 4096
CORES = 4

LISTENING = (
    "yarn.resourcemanager.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.webapp.address",
)
"""Where the resource manager listens: after a restart, at the same ports."""

SCHEDULER = {
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.maximum-allocation-mb": str(MEMORY_MB),
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    # Applications whose executors wait are better than applications that wait for others to end.
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}

NODE_MANAGER = {
    "yarn.nodemanager.address": "127.0.0.1:0",
    "yarn.nodemanager.localizer.address": "127.0.0.1:0",
    "yarn.nodemanager.webapp.address": "127.0.0.1:0",
    "yarn.nodemanager.resource.memory-mb": str(MEMORY_MB),
    "yarn.nodemanager.resource.cpu-vcores": str(CORES),
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    # A disk that others have filled is not what is tested; that nobody looks again is not enough.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100.0",
}

RECOVERY = {
    "yarn.resourcemanager.recovery.enabled": "true",
    "yarn.resourcemanager.store.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
    ),
    "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "1000",
    # A node and an application look for the one that was restarted every 30 seconds otherwise.
    "yarn.resourcemanager.connect.retry-interval.ms": "1000",
}

SPARK = {
    "spark.master": "yarn",
    "spark.submit.deployMode": "cluster",
    # The node is this machine: nothing is uploaded for each application.
    "spark.yarn.jars": f"local:{HOME}/jars/*",
    "spark.pyspark.python": sys.executable,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "1",
    "spark.executor.cores": "1",
    "spark.ui.enabled": "false",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
}
"""What the administrator of a cluster writes for all users."""


def install() -> Path:
    """Return a folder with what else YARN needs, below the virtual environment; fetch it if it is not there.

    :raises RuntimeError: Spark could not resolve it.
    """

    def fetched(folder: Path) -> Path:
        fetch(CERTIFICATES, cache=folder)
        return folder / "jars"

    return kept(CERTIFICATES.replace(":", "-"), fetched)


def write_site(path: Path, properties: dict[str, str]) -> None:
    """Write properties as Hadoop reads them."""
    root = ET.Element("configuration")
    for name, value in properties.items():
        entry = ET.SubElement(root, "property")
        ET.SubElement(entry, "name").text = name
        ET.SubElement(entry, "value").text = value
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


class Service:
    """A process of YARN, which ends with this one; `java_home` is where its Java is."""

    def __init__(self, kind: str, conf_folder: Path, folder: Path, **environment: str) -> None:
        path = f"{conf_folder}:{hdfs.install()}:{install()}/*:{HOME}/jars/*"
        log = folder / f"{kind}.log"
        with log.open("a") as output:
            self.process = subprocess.Popen(
                [java(), "-Xmx512m", *STARTS_FAST, "-cp", path, SOURCE, kind],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, **environment},
            )
        atexit.register(self.stop)
        for line in self.process.stdout:
            ready = re.fullmatch(r"ready (.+)\n", line)
            if ready:
                self.java_home = ready[1]
                return
        msg = f"The {kind} manager of YARN did not start: {log.read_text()[-2000:]}"
        raise RuntimeError(msg)

    def stop(self) -> None:
        """End it; a node kills its containers first."""
        self.process.stdin.close()
        self.process.wait()

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        self.process.wait()


class Yarn:
    """A resource manager and one node with 2 GB and 2 cores, beside HDFS.

    `resource_manager` is the URL of its web service. `conf_folder` is for `HADOOP_CONF_DIR`, and for
    `SPARK_CONF_DIR`: it has the settings of Hadoop, and those of Spark.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hdfs = hdfs.start()
        self.hdfs.make_folder("/user", owner=hdfs.USER)
        addresses = {name: f"127.0.0.1:{free_port()}" for name in LISTENING}
        self.resource_manager = f"http://{addresses['yarn.resourcemanager.webapp.address']}"
        folders = {
            "yarn.resourcemanager.fs.state-store.uri": f"file://{folder}/state",
            "yarn.nodemanager.local-dirs": f"{folder}/local",
            "yarn.nodemanager.log-dirs": f"{folder}/logs",
        }
        self.conf_folder = folder / "conf"
        self.conf_folder.mkdir()
        write_site(self.conf_folder / "core-site.xml", {"fs.defaultFS": self.hdfs.uri})
        write_site(self.conf_folder / "hdfs-site.xml", {"dfs.replication": "1"})
        yarn_site = {**addresses, **folders, **SCHEDULER, **NODE_MANAGER, **RECOVERY}
        write_site(self.conf_folder / "yarn-site.xml", yarn_site)
        lines = [f"{name} {value}\n" for name, value in SPARK.items()]
        (self.conf_folder / "spark-defaults.conf").write_text("".join(lines))
        self.start_resource_manager()
        java_home = self._resource_manager.java_home
        # Containers run the Java that their node names.
        self._node_manager = Service("node", self.conf_folder, folder, JAVA_HOME=java_home)

    def environment(self) -> dict[str, str]:
        """Return what spark-submit needs to find the cluster."""
        return {"HADOOP_CONF_DIR": str(self.conf_folder), "SPARK_CONF_DIR": str(self.conf_folder)}

    def start_resource_manager(self) -> None:
        """Start it; after it was killed, where it was, and it recovers the applications that are running."""
        self._resource_manager = Service("resource", self.conf_folder, self.folder)

    def kill_resource_manager(self) -> None:
        """Kill it; its applications go on."""
        self._resource_manager.kill()

    def restart_resource_manager(self) -> None:
        """Kill it, and start it again."""
        self.kill_resource_manager()
        self.start_resource_manager()


@functools.cache
def start() -> Yarn:
    """Start the cluster; it ends with this process."""
    folder = tempfile.mkdtemp(prefix="airflow-provider-scope-yarn-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Yarn(Path(folder))
