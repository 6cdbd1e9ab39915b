"""`headrace connect run`: feeds without their app."""

import json
import signal
import subprocess
import sys
import threading

from headrace.cli.stop import SIGNALS
from headrace.engine.connectors.control import reported
from headrace.log import Log

PROGRAM = """
import headrace as hr
from headrace.connect import files

app = hr.App("web", storage={storage!r}, shards=2)
lines = files.lines({lines!r}, follow={follow})
app.stream("requests", "path string, status int", source=lines).to_topic("copies")
"""


def program(tmp_path, *, follow):
    file = tmp_path / "app.py"
    file.write_text(PROGRAM.format(storage=str(tmp_path / "app"), lines=str(tmp_path / "access.jsonl"), follow=follow))
    return str(file)


def start(*arguments):
    code = "from headrace.cli.main import main; main()"
    command = [sys.executable, "-c", code, "connect", "run", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def landed(tmp_path):
    with Log(tmp_path / "app" / "log") as log:
        if not log.has_topic("requests"):
            return []
        topic = log.topic("requests")
        return sorted(
            path for p, end in topic.end_offsets().items() for path in topic.read(p, 0, end)["path"].to_pylist()
        )


def write(tmp_path, *paths):
    with (tmp_path / "access.jsonl").open("a") as file:
        file.writelines(json.dumps({"path": path, "status": 200}) + "\n" for path in paths)


def test_feeds_end_when_the_outside_has_no_more(tmp_path):
    write(tmp_path, "/a", "/b")
    for _ in range(2):
        process = start(program(tmp_path, follow=False), "--until-ended", "--json")
        said, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        last = json.loads(said.splitlines()[-1])["feeds"]["requests"]
        assert last["state"] == "ended"
    assert last["rows"] == 0, "the second run found nothing new"
    assert landed(tmp_path) == ["/a", "/b"]


def test_feeds_go_on_until_they_are_stopped_and_another_process_waits(tmp_path):
    write(tmp_path, "/a")
    first = start(program(tmp_path, follow=True))
    waiting = threading.Event()
    try:
        for _ in range(600):
            if landed(tmp_path) == ["/a"]:
                break
            waiting.wait(0.05)
        second = start(program(tmp_path, follow=True), "--json")
        assert json.loads(second.stdout.readline())["feeds"]["requests"]["state"] in ("starting", "elsewhere")
        second.send_signal(signal.SIGTERM)
        assert "elsewhere" in second.communicate(timeout=300)[0]
        write(tmp_path, "/b")
        for _ in range(600):
            if landed(tmp_path) == ["/a", "/b"]:
                break
            waiting.wait(0.05)
        assert landed(tmp_path) == ["/a", "/b"]
    finally:
        first.send_signal(signal.SIGINT)
        said, errors = first.communicate(timeout=300)
    assert first.returncode == 0, errors
    assert "requests: ended, 2 rows landed" in said


def test_an_app_without_feeds_says_so(tmp_path):
    file = tmp_path / "app.py"
    file.write_text('import headrace as hr\napp = hr.App("x")\napp.stream("t", "k int").to_view("v")\n')
    process = start(str(file))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert 'the app "x" has no feeds' in errors


def test_a_killed_worker_is_replaced(tmp_path):
    """Two workers share two feeds; one is killed, and the other lands what comes then."""
    folder, paths = tmp_path / "programs", {name: tmp_path / f"{name}.jsonl" for name in "ab"}
    folder.mkdir()
    for name, path in paths.items():
        path.write_text('{"path": "/1", "status": 200}\n')
        text = PROGRAM.format(storage=str(tmp_path / name), lines=str(path), follow=True)
        (folder / f"{name}.py").write_text(text.replace('"web"', f'"{name}"'))
    workers = [start(str(folder), "--json") for _ in range(2)]
    waiting = threading.Event()
    try:
        for _ in range(600):
            found = {name: reported(tmp_path / name).get("requests", {}) for name in "ab"}
            if {row.get("worker") for row in found.values()} == {worker.pid for worker in workers}:
                break
            waiting.wait(0.1)
        assert {row["worker"] for row in found.values()} == {worker.pid for worker in workers}
        victim = next(worker for worker in workers if worker.pid == found["b"]["worker"])
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        with paths["b"].open("a") as file:
            file.write('{"path": "/2", "status": 200}\n')
        for _ in range(600):
            if rows_of(tmp_path / "b") == ["/1", "/2"]:
                break
            waiting.wait(0.05)
        assert rows_of(tmp_path / "b") == ["/1", "/2"]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def rows_of(storage):
    with Log(storage / "log") as log:
        if not log.has_topic("requests"):
            return []
        topic = log.topic("requests")
        ends = topic.end_offsets().items()
        return sorted(path for p, end in ends for path in topic.read(p, 0, end)["path"].to_pylist())


def test_pause_check_and_offsets_answer_in_json(tmp_path, headrace):
    write(tmp_path, "/a")
    file = program(tmp_path, follow=False)
    assert json.loads(headrace("connect", "check", file, "--json").out) == {
        "connectors": [{"connector": "requests", "ok": True, "problem": None}]
    }
    assert json.loads(headrace("connect", "pause", file, "requests", "--json").out) == {"paused": ["requests"]}
    assert "paused" in headrace("connect", "status", file).out
    headrace("connect", "resume", file, "requests")
    handlers = [signal.getsignal(number) for number in SIGNALS]
    headrace("connect", "run", file, "--until-ended")
    assert [signal.getsignal(number) for number in SIGNALS] == handlers, "Ctrl-C is the caller's again"
    (row,) = json.loads(headrace("connect", "offsets", "list", file, "--json").out)["offsets"]
    assert json.loads(row["position"])["bytes"] > 0
    assert "begin again" in headrace("connect", "offsets", "reset", file, "requests").out
    wrong = headrace("connect", "restart", file, "request")
    assert (wrong.code, 'Did you mean "requests"?' in wrong.err) == (1, True)
