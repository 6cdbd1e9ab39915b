"""`headrace connect run`: feeds without their app."""

import json
import signal
import subprocess
import sys
import threading

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
        said, errors = process.communicate(timeout=60)
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
        assert "elsewhere" in second.communicate(timeout=60)[0]
        write(tmp_path, "/b")
        for _ in range(600):
            if landed(tmp_path) == ["/a", "/b"]:
                break
            waiting.wait(0.05)
        assert landed(tmp_path) == ["/a", "/b"]
    finally:
        first.send_signal(signal.SIGINT)
        said, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors
    assert "requests: ended, 2 rows landed" in said


def test_an_app_without_feeds_says_so(tmp_path):
    file = tmp_path / "app.py"
    file.write_text('import headrace as hr\napp = hr.App("x")\napp.stream("t", "k int").to_view("v")\n')
    process = start(str(file))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert 'the app "x" has no feeds' in errors
