"""A Spark standalone cluster on this machine: a master and two workers of one core, from the jars of the wheel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark
from scripts.broker.jars import JAVA_OPTIONS

from headrace.engine.spark.java import java_home
from headrace.engine.spark.python import python_program

START_SECONDS = 180
LOOPBACK = "127.0.0.1"
EXECUTOR = "CoarseGrainedExecutorBackend"
JVM = " ".join(JAVA_OPTIONS)
CONF = {
    "spark.executor.extraJavaOptions": JVM,
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.cores.max": "2",
}


class Cluster:
    """The cluster; its files and logs are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        home = Path(pyspark.__file__).parent
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_JAVA_OPTS": JVM,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": python_program(),
        }
        self.started: dict[str, subprocess.Popen] = {}
        self._spark_class = str(home / "bin" / "spark-class")
        self._start("master", "master.Master", "--port", "0", "--webui-port", "0", "--host", LOOPBACK)
        self.master = self._await("master", r"Starting Spark master at (spark://\S+)")
        for name in ("worker1", "worker2"):
            self.start_worker(name)
        for name in ("worker1", "worker2"):
            self._await(name, "Successfully registered with master")

    def start_worker(self, name: str) -> None:
        """Start a worker, or start it again."""
        work, host = str(self.folder / name), f"127.0.0.{name[-1]}"  # a speculative copy runs on another host only
        options = ("--cores", "1", "--memory", "1g", "--port", "0", "--webui-port", "0", "--host", host)
        self._start(name, "worker.Worker", *options, "--work-dir", work, self.master, host=host)

    def _start(self, name: str, kind: str, *arguments: str, host: str = LOOPBACK) -> None:
        command = [self._spark_class, f"org.apache.spark.deploy.{kind}", *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.started[name] = subprocess.Popen(
                command,
                env=self.environment | {"SPARK_LOCAL_IP": host},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await(self, name: str, pattern: str) -> str:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            found = re.search(pattern, (self.folder / f"{name}.log").read_text())
            if found:
                return found[found.re.groups]
            if self.started[name].poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"{name} has not started: {(self.folder / f'{name}.log').read_text()[-2000:]}")

    def pids(self, what: str) -> list[int]:
        """Return processes of this cluster: `executor`, or `python` for the Python workers of executors."""
        executors = [pid for pid, words in _processes() if EXECUTOR in words and str(self.folder) in _folder_of(pid)]
        if what == "executor":
            return executors
        daemons = [pid for pid, words in _processes() if "pyspark.daemon" in words and _parent(pid) in executors]
        return [pid for pid, _ in _processes() if _parent(pid) in daemons] or daemons

    def kill(self, what: str) -> int | None:
        """End a process by kill -9: `executor`, `python` or `worker`; return its id, None if there is none now."""
        if what == "worker":
            worker = self.started["worker2"]
            worker.kill()
            worker.wait()
            self.start_worker("worker2")
            return worker.pid
        for pid in self.pids(what)[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return None
            return pid
        return None

    def run(self, program: Path, *arguments: str, conf: dict[str, str] | None = None, log: Path) -> subprocess.Popen:
        """Start `headrace run` with this cluster, its output in `log`."""
        settings = [f"--conf={name}={value}" for name, value in (CONF | (conf or {})).items()]
        command = [
            str(Path(sys.executable).with_name("headrace")),
            "run",
            str(program),
            "--master",
            self.master,
            *settings,
        ]
        with log.open("ab") as file:
            return subprocess.Popen(
                [*command, *arguments], env=self.environment, stdout=file, stderr=file, start_new_session=True
            )

    def close(self) -> None:
        """End what was started, workers first."""
        for name in sorted(self.started, reverse=True):
            process = self.started[name]
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.pids("executor"):
            os.kill(pid, signal.SIGKILL)


def _processes() -> list[tuple[int, str]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except (OSError, UnicodeDecodeError):
                continue
    return found


def _folder_of(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
