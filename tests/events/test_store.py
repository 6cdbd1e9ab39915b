"""The store of events: versions without a gap, atomic appends, conflicts as answers, whatever crashes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import events
from headrace.base.errors import InvalidArgument, LogClosed
from headrace.base.time import ManualClock, instant
from headrace.events import appending, index
from headrace.events.event import Appended, Conflict, Event
from headrace.log import Log
from headrace.testing import Crash

PROCESS = Path(__file__).with_name("appending_process.py")


@pytest.fixture
def store(tmp_path):
    with Log(tmp_path / "log", fsync=False) as log, events.EventStore(log) as opened:
        yield opened


def added(*numbers):
    return [Event("Added", {"n": number}) for number in numbers]


def numbers(store, stream):
    found = store.load(stream)
    assert [event.version for event in found] == list(range(1, len(found) + 1))
    return [event.data["n"] for event in found]


def test_events_have_versions_from_one_and_come_back_as_they_were(store):
    event = Event("Größe✓", {"a": [1, None, {"b": "ü\n🎉"}], "big": 2**80}, schema=3, meta={"who": "ann"})
    assert store.append("s 1/ü", [event, *added(2)], expected_version=0) == Appended(2)
    first, second = store.load("s 1/ü")
    assert (first.type, first.data, first.schema, first.meta) == (event.type, event.data, 3, event.meta)
    assert (first.version, second.version, second.meta, second.stream) == (1, 2, None, "s 1/ü")
    assert store.version("s 1/ü") == 2
    assert store.version("nobody") == 0
    assert store.load("nobody") == []


def test_another_version_is_a_conflict_and_records_nothing(store):
    assert store.append("s", added(1), expected_version=0) == Appended(1)
    assert store.append("s", added(2), expected_version=0) == Conflict(1)
    assert store.append("s", added(2), expected_version=5) == Conflict(1)
    assert store.append("s", added(2)) == Appended(2)
    assert numbers(store, "s") == [1, 2]


def test_a_command_is_recorded_once(store):
    assert store.append("s", added(1, 2), expected_version=0, command="c1") == Appended(2)
    store.append("s", added(3))
    assert store.append("s", added(1, 2), expected_version=0, command="c1") == Appended(2)
    assert store.append("s", added(1, 2), command="c1") == Appended(2)
    assert store.append("other", added(1), command="c1") == Appended(1)
    assert numbers(store, "s") == [1, 2, 3]


def test_what_is_sent_is_decided_in_order(store):
    answers = [store.send("s", added(number), expected_version=number) for number in range(50)]
    assert [answer.result(30) for answer in answers] == [Appended(number + 1) for number in range(50)]
    twice = [store.send("s", added(99), command="once") for _ in range(5)]
    assert {answer.result(30) for answer in twice} == {Appended(51)}
    assert numbers(store, "s") == [*range(50), 99]


def test_what_is_cancelled_before_it_is_decided_is_not_recorded_and_the_rest_is_answered(store):
    """Whoever answers is one thread for all who wait: a future that it cannot set would end it."""
    store.append("s", added(0))
    with store._appender("s").current():  # noqa: SLF001 -- so that nothing is decided meanwhile
        answers = [store.send("s", added(number)) for number in (1, 2, 3)]
        assert answers[1].cancel()
    assert [answers[0].result(30), answers[2].result(30)] == [Appended(2), Appended(3)]
    assert not answers[0].cancel()
    assert store.send("s", added(4)).result(30) == Appended(4)
    assert numbers(store, "s") == [0, 1, 3, 4]


def test_close_answers_what_was_sent(tmp_path):
    with events.EventStore(tmp_path / "log") as store:
        answers = [store.send("s", added(number)) for number in range(20)]
    assert [answer.result(0) for answer in answers] == [Appended(number + 1) for number in range(20)]


@pytest.mark.parametrize("many", [3, 10_000])
def test_the_index_is_made_anew_from_the_topic(tmp_path, monkeypatch, many):
    """From dicts, from runs, and from both; another store sees what this one appends."""
    monkeypatch.setattr(index, "MANY", many)
    monkeypatch.setattr(index, "MOST_RECENT", 10 * many)
    with Log(tmp_path / "log", fsync=False) as log:
        one, other = events.EventStore(log, partitions=3), events.EventStore(log)
        for number in range(100):
            one.append(f"s{number % 7}", added(number))
            if number % 10 == 0:
                assert other.append("common", added(number)).version == number // 10 + 1
        assert one.version("common") == 10
        third = events.EventStore(log)
        for stream in ("s0", "s6", "common", "none"):
            assert numbers(third, stream) == numbers(one, stream) == numbers(other, stream)
        for each in (one, other, third):
            each.close()


def test_what_a_store_has_appended_itself_is_kept_in_little_memory(store, monkeypatch):
    """Its own events become runs, too, of which there are few; a version that is not remembered is read again."""
    monkeypatch.setattr(index, "MOST_RECENT", 10)
    for number in range(300):
        assert store.append(f"s{number % 30}", added(number)) == Appended(number // 30 + 1)
    (appender,) = vars(store)["_appenders"]
    with appender.current() as found:
        kept = {name: len(vars(found)[name]) for name in ("_recent", "_versions", "_runs")}
    assert kept["_recent"] < 10
    assert kept["_versions"] <= 10
    assert kept["_runs"] <= 5
    assert numbers(store, "s7") == [*range(7, 300, 30)]


def test_names_of_one_hash_are_told_apart(store, monkeypatch):
    monkeypatch.setattr(index, "MANY", 1)
    monkeypatch.setattr(index, "MOST_RECENT", 2)
    monkeypatch.setattr(index, "hash_column", lambda column: index.np.zeros(len(column), index.np.uint64))
    for number in range(6):
        store.append("ab"[number % 2], added(number), expected_version=number // 2)
    again = events.EventStore(store.log)
    assert numbers(again, "a") == [0, 2, 4]
    assert [event.data["n"] for event in again.load("b", after=1)] == [3, 5]
    assert again.append("b", added(7), expected_version=2) == Conflict(3)
    again.close()


@pytest.mark.parametrize("point", ["before_lock", "before_check", "before_append", "after_append"])
def test_after_a_crash_at_any_point_an_append_is_whole_or_not_there(tmp_path, point):
    armed = []

    def fault(at):
        if at in armed:
            raise Crash(at)

    with Log(tmp_path / "log", fsync=False) as log:
        store = events.EventStore(log, fault=fault)
        store.append("s", added(1))
        armed.append(point)
        with pytest.raises(Crash):
            store.append("s", added(2, 3), expected_version=1, command="c")
        again = events.EventStore(log)
        assert numbers(again, "s") == ([1, 2, 3] if point == "after_append" else [1])
        assert again.append("s", added(2, 3), expected_version=1, command="c") == Appended(3)
        armed.clear()
        assert store.append("s", added(4), expected_version=3) == Appended(4)
        assert numbers(store, "s") == numbers(again, "s") == [1, 2, 3, 4]


def check_answers(log, lines):
    """Compare answers of processes with what is recorded: no version twice, none lost, appends whole."""
    with events.EventStore(log) as store:
        given = Counter()
        for stream, kind, version, count, append in lines:
            if kind == "Appended":
                for each in range(int(version) - int(count) + 1, int(version) + 1):
                    given[stream, each] += 1
                    name, number = append.split(".")
                    data = store.load(stream, after=each - 1, until=each)[0].data
                    assert data == {"by": name, "n": int(number)}
        assert set(given.values()) <= {1}
        for stream in {stream for stream, *_ in lines}:
            recorded = store.load(stream)
            assert [event.version for event in recorded] == list(range(1, len(recorded) + 1))
            yield stream, len(recorded), sum(of == stream for of, _ in given)


def started(log, count, streams, processes):
    command = [sys.executable, str(PROCESS), str(log)]
    found = [
        subprocess.Popen([*command, f"p{n}", str(count), str(streams)], stdin=-1, stdout=-1, text=True)
        for n in range(processes)
    ]
    for each in found:
        assert each.stdout.readline() == "ready\n"
    for each in found:
        each.stdin.write("go\n")
        each.stdin.flush()
    return found


@pytest.mark.parametrize("processes", [4, pytest.param(16, marks=pytest.mark.prove)])
def test_processes_append_to_the_same_streams(tmp_path, processes):
    found = started(tmp_path / "log", 30, 5, processes)
    lines = [line.split() for each in found for line in each.communicate(timeout=120)[0].splitlines()]
    assert len(lines) == 30 * processes
    for stream, recorded, answered in check_answers(tmp_path / "log", lines):
        assert recorded == answered, stream


def test_a_killed_process_has_given_no_answer_that_is_not_recorded(tmp_path):
    killed, other = started(tmp_path / "log", 100_000, 3, 2)
    lines = [killed.stdout.readline().split() for _ in range(25)]
    killed.kill()
    other.kill()
    for each in (killed, other):
        lines += [line.split() for line in each.communicate()[0].splitlines()]
    whole = [line for line in lines if len(line) == 5 and line[-1].count(".") == 1 and not line[-1].endswith(".")]
    unanswered = sum(recorded - answered for _, recorded, answered in check_answers(tmp_path / "log", whole))
    assert 0 <= unanswered <= 6  # of each process one append of at most three events was under way


def test_threads_append_to_the_same_streams(store):
    answers, threads = [], []

    def append(name):
        answers.extend(store.append(f"s{number % 3}", added(f"{name}.{number}")) for number in range(40))

    for name in range(8):
        threads.append(threading.Thread(target=append, args=(name,)))
        threads[-1].start()
    for each in threads:
        each.join()
    assert len(answers) == 320
    assert sorted(n for stream in ("s0", "s1", "s2") for n in numbers(store, stream)) == sorted(
        f"{name}.{number}" for name in range(8) for number in range(40)
    )


def test_threads_that_wait_are_answered_together_by_one_write(tmp_path):
    """Who has its answer comes back at once: the next write waits for it, instead of writing for one thread alone."""

    class SlowDisk(ManualClock):
        def monotonic(self):
            self.sleep(0.4)  # so that a write seems to take long, and waiting for others is worth it
            return super().monotonic()

    writes, threads, each = [], 8, 12

    def append(stream):
        for version in range(each):
            assert store.append(stream, added(version), expected_version=version) == Appended(version + 1)

    with (
        Log(tmp_path, clock=SlowDisk()) as log,
        events.EventStore(log, fault=lambda point: writes.append(point) if point == "before_append" else None) as store,
    ):
        running = [threading.Thread(target=append, args=(f"s{n}",)) for n in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert all(store.version(f"s{n}") == each for n in range(threads))
    assert len(writes) <= each + each // 2


def test_time_never_goes_back_in_a_store_even_if_the_clock_does(tmp_path):
    clock = ManualClock(instant("2026-01-01T00:00:00Z"))
    with Log(tmp_path / "log", clock=clock, fsync=False) as log, events.EventStore(log) as store:
        store.append("s", added(1))
        clock.advance(3600)
        store.append("s", added(2))
        clock.advance(-7200)
        store.append("s", added(3))
        assert [event.data["n"] for event in store.load("s", at="2026-01-01T00:30:00Z")] == [1]
        assert numbers(store, "s") == [1, 2, 3]
        times = [event.at for event in store.load("s")]
        assert times == sorted(times)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.none() | st.integers(0, 6)), max_size=25))
def test_the_store_is_its_model(tmp_path_factory, steps):
    """Any appends, each by a store of its own or by one that stays open, are those of lists with a version check."""
    model = {}
    with Log(tmp_path_factory.mktemp("model") / "log", fsync=False) as log:
        stays = events.EventStore(log, partitions=2)
        for number, (stream, count, expected) in enumerate(steps):
            has = model.setdefault(stream, [])
            used = stays if number % 2 else events.EventStore(log)
            answer = used.append(stream, added(*[number] * count), expected_version=expected)
            if expected in (None, len(has)):
                has += [number] * count
                assert answer == Appended(len(has))
            else:
                assert answer == Conflict(len(has))
        for stream, has in model.items():
            assert numbers(stays, stream) == has


@pytest.mark.parametrize(
    "wrong",
    [
        lambda store: store.append("", added(1)),
        lambda store: store.append(3, added(1)),
        lambda store: store.append("s", []),
        lambda store: store.append("s", ["SeatTaken"]),
        lambda store: store.append("s", added(1), expected_version=-1),
        lambda store: store.append("s", added(1), expected_version="0"),
        lambda store: store.append("s", added(1), command=7),
        lambda store: store.load("s", after=-1),
        lambda store: store.load("s", after="1"),
        lambda store: store.load("s", until=2.5),
        lambda store: store.load(3),
        lambda _store: Event("", {}),
        lambda _store: Event("E", {"n": float("nan")}),
        lambda _store: Event("E", {"n": {1, 2}}),
        lambda _store: Event("E", [1]),
        lambda _store: Event("E", {"text": "\ud800"}),
        lambda _store: Event("E", meta={"\udfff": 1}),
        lambda _store: Event("E", schema=0),
        lambda _store: Event("E", schema=1 << 31),
    ],
)
def test_what_is_of_the_wrong_type_is_refused_by_our_errors(store, wrong):
    with pytest.raises(InvalidArgument):
        wrong(store)
    assert store.version("s") == 0


def test_what_is_sent_to_a_closed_store_is_refused(store):
    assert store.send("s", added(1)).result(60) == Appended(1)
    store.close()
    with pytest.raises(LogClosed):
        store.send("s", added(2))


@pytest.fixture
def ctrl_c():
    """Ctrl-C as in a program of its own: tests that run in the background of a shell ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_who_is_interrupted_while_others_append_is_not_waited_for(tmp_path):
    entered, go_on = threading.Event(), threading.Event()

    def fault(point):
        if point == "before_check":
            entered.set()
            go_on.wait(60)

    def interrupt():
        time.sleep(0.3)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with events.EventStore(tmp_path / "log", fault=fault) as store, ThreadPoolExecutor(3) as others:
        first = others.submit(store.append, "s", added(1))
        assert entered.wait(60)
        others.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.append("s", added(2))
        go_on.set()
        assert first.result(60) == Appended(1)
        assert store.send("s", added(3)).result(60) == Appended(2)
        assert others.submit(store.append, "s", added(4)).result(60) == Appended(3)


def test_who_leads_and_is_interrupted_answers_the_others(store, monkeypatch):
    """It gathers others when Ctrl-C comes; one who leads after that may be itself."""
    gather, interrupted = appending.Appender._gather, threading.Event()  # noqa: SLF001 -- where Ctrl-C comes

    def once(appender):
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        gather(appender)

    monkeypatch.setattr(appending.Appender, "_gather", once)
    with pytest.raises(KeyboardInterrupt):
        store.append("s", added(1))
    assert store.append("s", added(2)) == Appended(2)


def test_a_topic_that_is_no_store_is_refused(tmp_path):
    with Log(tmp_path / "log", fsync=False) as log:
        log.create_topic("events", "id int")
        with pytest.raises(InvalidArgument, match="none of a store"):
            events.EventStore(log)
