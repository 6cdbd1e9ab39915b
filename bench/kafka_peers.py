"""The rivals of the Kafka benches that are no part of this project: Flink, Kafka Streams, Quix, Bytewax and Pathway.

Where they are is said by variables of the environment:

- `HEADRACE_PEERS`: the folder of their programs, with `jvm/flink`, `jvm/kstreams` and `python`.
- `HEADRACE_PEERS_BUILD`: where the two on the JVM are built by Maven, once; else a folder in the user's cache.
- `HEADRACE_PEERS_PYTHON`: a Python that has quixstreams, bytewax and pathway.

A rival that is not there is reported with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figure import WrongAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.kafka_bids import Bids

_OPENS = "--add-opens=java.base/java.{0}=ALL-UNNAMED"
_QUERIES = Path(__file__).with_name("kafka_flink.sql")
_COPY = Path(__file__).with_name("KafkaCopyFlink.java")
"""Java compiles it when it runs."""
_LIMIT = 900


class RivalMissing(Exception):
    """A rival cannot be run on this machine; the text is the reason."""


def flink(bids: Bids, query: str, *, runs: int) -> list[float]:
    """Return the seconds of each run of a query of `kafka_flink.sql` in one JVM: the first is cold."""
    ran = _run(_flink(bids, query, f"runs={runs}"))
    return [each["job_ms"] / 1000 for each in _objects(ran)]


def flink_answer(bids: Bids, query: str, folder: Path) -> list[list[str]]:
    """Return the rows of a query's result, as text."""
    folder.mkdir(parents=True, exist_ok=True)
    _run(_flink(bids, query, f"check={folder}"))
    return [line.split("\t") for line in (folder / f"{query}.tsv").read_text(encoding="utf-8").splitlines()]


def flink_copy(bids: Bids, to: str, *, runs: int) -> list[float]:
    """Return the seconds of each exactly-once copy of the bids; run n writes to the topic with n behind its name."""
    command = _java("flink", str(_COPY), heap="5g")
    ran = _run([*command, f"servers={bids.servers}", f"from={bids.topic}", f"to={to}", f"runs={runs}"])
    return [each["job_ms"] / 1000 for each in _objects(ran)]


def flink_latency(servers: str, *, exactly_once: bool = True) -> list[str]:
    """Return the command that counts by key from topic `{in}` to topic `{out}`, with checkpoints every second."""
    sure = ["guarantee=exactly-once", "execution.checkpointing.interval=1s"] if exactly_once else ["guarantee=none"]
    return [*_java("flink", "peers.LatencyFlink", heap="2g"), f"servers={servers}", "in={in}", "out={out}", *sure]


def streams(bids: Bids, mode: str, state: Path, **settings: str) -> tuple[float, int]:
    """Return the seconds of a topology of Kafka Streams without the first tenth, times 10/9, and what it put out.

    Exactly once, state in RocksDB. It starts in a JVM of its own: so the first tenth is its start.
    """
    about = {"mode": mode, "store": "rocksdb", "processing.guarantee": "exactly_once_v2", "label": "bench"} | settings
    command = [*_java("kstreams", "peers.NexmarkStreams", heap="3g"), f"servers={bids.servers}"]
    command += [f"prefix={bids.prefix}", f"state={state}", *(f"{name}={value}" for name, value in about.items())]
    (found,) = _objects(_run(command))
    shutil.rmtree(state, ignore_errors=True)
    if found["in"] != bids.rows:
        raise WrongAnswer(f"Kafka Streams read {found['in']} bids of {bids.rows}")
    return found["after_tenth_ms"] / 900, found["out"]


def streams_latency(servers: str, state: Path) -> list[str]:
    """Return the command that counts by key from topic `{in}` to topic `{out}`, exactly once, commits every 100 ms."""
    command = [*_java("kstreams", "peers.LatencyStreams", heap="2g"), f"servers={servers}", "in={in}", "out={out}"]
    return [*command, f"state={state}", "processing.guarantee=exactly_once_v2", "commit.interval.ms=100"]


def python(bids: Bids, program: str, workload: str, *arguments: str, folder: Path) -> dict[str, Any]:
    """Return what a peer in Python printed: `seconds` from its first record to its last, `records`, and its answer."""
    interpreter, home = os.environ.get("HEADRACE_PEERS_PYTHON"), _home() / "python"
    if interpreter is None:
        raise RivalMissing("HEADRACE_PEERS_PYTHON does not name a Python with its package")
    command = [
        interpreter,
        str(home / f"{program}_peer.py"),
        workload,
        "--kafka",
        bids.servers,
        "--prefix",
        bids.prefix,
    ]
    ran = _run([*command, *arguments], cwd=home, env={"TMPDIR": str(folder)})
    found = [line[line.index("{") :] for line in ran.splitlines() if '{"tool"' in line]
    return dict(json.loads(found[-1]))


def _flink(bids: Bids, query: str, *arguments: str) -> list[str]:
    command = [*_java("flink", "peers.NexmarkFlink", heap="5g"), f"queries={_QUERIES}", f"servers={bids.servers}"]
    return [*command, f"prefix={bids.prefix}", f"query={query}", *arguments]


def _java(name: str, main: str, *, heap: str) -> list[str]:
    place = _built(name)
    opens = [_OPENS.format(package) for package in ("lang", "util", "util.concurrent", "net", "time")]
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    settings = _home() / "jvm" / name / "log4j2.properties"
    if settings.exists():
        quiet.append(f"-Dlog4j2.configurationFile={settings}")
    return ["java", f"-Xms{heap}", f"-Xmx{heap}", *quiet, *opens, "-cp", f"{place}/build/classes:{place}/libs/*", main]


def _built(name: str) -> Path:
    """Return the folder of a rival on the JVM; built the first time."""
    base = os.environ.get("HEADRACE_PEERS_BUILD")
    place = (Path(base) if base else Path.home() / ".cache" / "headrace-peers") / name
    if not (place / "build" / "classes").exists() or not (place / "libs").exists():
        project = _home() / "jvm" / name / "pom.xml"
        if shutil.which("mvn") is None or shutil.which("java") is None:
            raise RivalMissing(f"{name} is not built, and there is no mvn or no java")
        goals = ["compile", "dependency:copy-dependencies", f"-DoutputDirectory={place}/libs"]
        _run(["mvn", "-q", "-B", "-f", str(project), f"-Dout={place}/build", *goals])
    return place


def _home() -> Path:
    folder = os.environ.get("HEADRACE_PEERS")
    if folder is None or not Path(folder).is_dir():
        raise RivalMissing("HEADRACE_PEERS does not name the folder of the rivals' programs")
    return Path(folder)


def _run(command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(command, cwd=cwd, env=os.environ | dict(env or {}), capture_output=True, text=True,
                         check=False, timeout=_LIMIT)  # fmt: skip
    if ran.returncode:
        raise RivalMissing(f"it failed: {(ran.stderr or ran.stdout).strip()[-500:]}")
    return ran.stdout


def _objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
