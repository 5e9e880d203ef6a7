"""Stands for the kubelet of one node: runs the containers of Spark's pods as processes of this machine.

Started as ``python kubelet.py <folder> <address of the API> <port>``. The folder has the token and the
certificate of the API. What it does not have is what Spark's image has: ``entrypoint.sh`` is told here, and
names of services are this machine's address. It ends with its process group.
"""

from __future__ import annotations

import http.server
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark
import requests

NODE = "laptop"
HOME = Path(pyspark.__file__).parent
ADDRESS = "127.0.0.1"
LOOK_SECONDS = 0.2
_OF_SERVICES = re.compile(r"^spark\.driver\.(host|port|blockManager\.port|bindAddress)[=\s].*$", re.MULTILINE)
"""Settings that need a service's name, or a machine for each pod."""


@dataclass
class Container:
    """The process of a pod's container, and what it wrote."""

    pod: str
    process: subprocess.Popen[bytes]
    log: Path

    def end(self) -> None:
        """End all its processes, as a container ends when its first one does."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.process.pid)
            for one in [*process.children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()


class Kubelet:
    """Follows the pods of the API."""

    def __init__(self, folder: Path, api: str, port: int) -> None:
        self.folder = folder
        self.api = api
        self.port = port
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {(folder / 'token').read_text()}"
        self.session.verify = str(folder / "apiserver.crt")
        self.session.trust_env = False  # a bundle of certificates named there would go before
        self.containers: dict[str, Container] = {}
        """By the pod's uid."""

    def call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        """Ask the API.

        :raises requests.HTTPError: It refuses.
        """
        answer = self.session.request(method, f"{self.api}/api/v1{path}", **arguments)
        answer.raise_for_status()
        value: dict[str, Any] = answer.json()
        return value

    def patch(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        self.call(
            "PATCH",
            f"{_path(pod)}/status",
            json={"status": status},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def register(self) -> None:
        """Make the node, so that the API asks here for logs."""
        self.call("POST", "/nodes", json={"metadata": {"name": NODE}})
        status = {
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }
        self.call(
            "PATCH",
            f"/nodes/{NODE}/status",
            json={"status": status},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def follow(self) -> None:
        """Look at all pods, again and again."""
        while True:
            try:
                pods = self.call("GET", "/pods")["items"]
                uids = {pod["metadata"]["uid"] for pod in pods}
                for pod in pods:
                    self._look(pod, uids)
            except requests.RequestException as err:
                print(f"the API: {err}", flush=True)  # noqa: T201 - its log
            time.sleep(LOOK_SECONDS)

    def _look(self, pod: dict[str, Any], uids: set[str]) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        container = self.containers.get(metadata["uid"])
        owners = {owner["uid"] for owner in metadata.get("ownerReferences", ()) if owner["kind"] == "Pod"}
        if "deletionTimestamp" in metadata or owners - uids:  # the latter is the garbage collector's work
            if container:
                container.end()
            self.call("DELETE", _path(pod), json={"gracePeriodSeconds": 0})
        elif phase == "Pending" and not container:
            self._start(pod)
        elif container and phase == "Running" and container.process.poll() is not None:
            container.end()
            code = container.process.returncode
            ended = {
                "terminated": {
                    "exitCode": code if code >= 0 else 128 - code,
                    "reason": "Error" if code else "Completed",
                }
            }
            self.patch(
                pod, {"phase": "Failed" if code else "Succeeded", "containerStatuses": _statuses(pod, ended)}
            )

    def _start(self, pod: dict[str, Any]) -> None:
        if "nodeName" not in pod["spec"]:
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            self.call(
                "POST",
                f"{_path(pod)}/binding",
                json={"metadata": {"name": pod["metadata"]["name"]}, "target": target},
            )
        container = pod["spec"]["containers"][0]
        if container["image"] != "spark":
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": f"no image {container['image']}"}}
            self.patch(pod, {"containerStatuses": _statuses(pod, waiting)})
            return
        place = self.folder / pod["metadata"]["uid"]
        place.mkdir(exist_ok=True)
        conf = self._mount(pod, place)
        environment = _environment(pod)
        role, *arguments = container["args"]
        command = self._driver(arguments, conf) if role == "driver" else _executor(environment)
        log = place / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={
                    **{
                        name: os.environ[name] for name in ("HOME", "PATH", "JAVA_HOME") if name in os.environ
                    },
                    **environment,
                    "SPARK_HOME": str(HOME),
                    "SPARK_CONF_DIR": str(conf),
                    "SPARK_LOCAL_DIRS": str(place),
                    "PYSPARK_PYTHON": sys.executable,
                },
            )
        self.containers[pod["metadata"]["uid"]] = Container(pod["metadata"]["name"], process, log)
        self.patch(
            pod, {"phase": "Running", "podIP": ADDRESS, "containerStatuses": _statuses(pod, {"running": {}})}
        )

    def _mount(self, pod: dict[str, Any], place: Path) -> Path:
        """Write the config map of Spark's settings to a folder."""
        conf = place / "conf"
        conf.mkdir(
            exist_ok=True
        )  # the pod comes before its config map, and is tried again until that is there
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                name = volume["configMap"]["name"]
                path = f"/namespaces/{pod['metadata']['namespace']}/configmaps/{name}"
                for file, text in (self.call("GET", path).get("data") or {}).items():
                    (conf / file).write_text(_OF_SERVICES.sub("", text))
        return conf

    def _driver(self, arguments: list[str], conf: Path) -> list[str]:
        mounted = "spark.kubernetes.authenticate.driver.mounted"
        settings = {
            "spark.driver.bindAddress": ADDRESS,
            "spark.driver.host": ADDRESS,
            "spark.kubernetes.driver.master": self.api,
            f"{mounted}.oauthTokenFile": str(self.folder / "token"),
            f"{mounted}.caCertFile": str(self.folder / "apiserver.crt"),
        }
        given = [argument.replace("/opt/spark/conf", str(conf)) for argument in arguments]
        options = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
        return [str(HOME / "bin/spark-submit"), *options, "--deploy-mode", "client", *given]


def _executor(environment: dict[str, str]) -> list[str]:
    java = str(Path(os.environ["JAVA_HOME"], "bin/java")) if "JAVA_HOME" in os.environ else "java"
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    options = [environment[name] for name in sorted(environment) if name.startswith("SPARK_JAVA_OPT_")]
    arguments = {
        "driver-url": environment["SPARK_DRIVER_URL"],
        "executor-id": environment["SPARK_EXECUTOR_ID"],
        "cores": environment["SPARK_EXECUTOR_CORES"],
        "app-id": environment["SPARK_APPLICATION_ID"],
        "hostname": ADDRESS,
        "resourceProfileId": environment["SPARK_RESOURCE_PROFILE_ID"],
        "podName": environment["SPARK_EXECUTOR_POD_NAME"],
    }
    return [
        *(java, *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{HOME}/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *(text for name, value in arguments.items() for text in (f"--{name}", value)),
    ]


def _environment(pod: dict[str, Any]) -> dict[str, str]:
    fields = {"status.podIP": ADDRESS, "metadata.name": pod["metadata"]["name"]}
    values = {}
    for variable in pod["spec"]["containers"][0]["env"]:
        source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        values[variable["name"]] = fields[source] if source else variable.get("value", "")
    return values


def _statuses(pod: dict[str, Any], state: dict[str, Any]) -> list[dict[str, Any]]:
    (container,) = pod["spec"]["containers"]
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": "running" in state,
            "restartCount": 0,
            "state": state,
        }
    ]


def _path(pod: dict[str, Any]) -> str:
    return f"/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def serve_logs(kubelet: Kubelet) -> None:
    """Serve what the containers wrote, where the API asks for it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            name = path.split("/")[3]
            logs = [container.log for container in kubelet.containers.values() if container.pod == name]
            lines = logs[-1].read_bytes().splitlines(keepends=True) if logs else []
            tail = re.search(r"tailLines=(\d+)", query)
            body = b"".join(lines[-int(tail[1]) :] if tail else lines)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer((ADDRESS, kubelet.port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(kubelet.folder / "apiserver.crt", kubelet.folder / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    node = Kubelet(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    serve_logs(node)
    node.register()
    node.follow()
