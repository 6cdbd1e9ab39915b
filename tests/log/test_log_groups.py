"""Consumer groups: live members share partitions, nothing is skipped, and who was away for too long commits nothing."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import (
    GroupElsewhere,
    GroupInUse,
    InvalidArgument,
    InvalidName,
    MemberFenced,
    OffsetOutOfRange,
    UnknownGroup,
    UnknownTopic,
)
from headrace.base.time import ManualClock
from headrace.log import Log
from headrace.log.groups.assigning import ASSIGNORS
from headrace.log.groups.looking import group_named, groups_of, reset_group

MEMBER = Path(__file__).parent / "group_member.py"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    with Log(tmp_path / "log", clock=clock, fsync=False) as opened:
        opened.create_topic("clicks", "id bigint", partitions=4, key="id")
        opened.create_topic("views", "id bigint", partitions=2, key="id")
        yield opened


def put(log, count, topic="clicks"):
    log.topic(topic).append([{"id": number} for number in range(count)])


def polled(consumer, most=10_000):
    return sum(records.rows.num_rows for records in consumer.poll(most))


def settle(*consumers):
    """Poll until everybody has its share."""
    for _ in range(3):
        for consumer in consumers:
            consumer.pause()
            consumer.poll()
            consumer.resume()


def test_members_share_partitions_and_groups_do_not_touch_each_other(log):
    put(log, 1000)
    with log.consumer("a", "clicks") as one, log.consumer("a", ["clicks"]) as two, log.consumer("b", "clicks") as other:
        assert polled(one) == 1000
        one.commit()
        settle(one, two)
        assert sorted(one.assignment() + two.assignment()) == [("clicks", number) for number in range(4)]
        assert len(one.assignment()) == len(two.assignment()) == 2
        put(log, 1000)
        assert polled(one) + polled(two) == 1000
        assert polled(other) == 2000
        assert sum(one.lag().values()) == 0


def test_records_of_a_partition_come_in_order_and_not_more_than_asked_for(log):
    put(log, 500)
    seen = defaultdict(list)
    with log.consumer("a", "clicks") as consumer:
        while found := consumer.poll(7):
            assert sum(records.rows.num_rows for records in found) <= 7
            for topic, partition, rows in found:
                assert topic == "clicks"
                seen[partition] += rows.column("_offset").to_pylist()
    assert {number: list(range(end)) for number, end in log.topic("clicks").end_offsets().items()} == seen


def test_the_next_member_goes_on_at_the_commit(log):
    put(log, 100)
    with log.consumer("a", "clicks") as consumer:
        polled(consumer, 30)
        consumer.commit()
        polled(consumer, 30)
    with log.consumer("a", "clicks") as consumer:
        assert polled(consumer) == 70
        consumer.commit({("clicks", 0): 1})
        assert consumer.committed("clicks", 0) == 1


def test_only_what_has_to_move_moves_and_its_work_can_be_committed_before(log):
    put(log, 400)
    given_up = []

    def revoked(places):
        given_up.extend(places)
        one.commit()

    with log.consumer("a", "clicks", on_revoked=revoked) as one, log.consumer("a", "clicks") as two:
        polled(one)
        stays = set(one.assignment())
        assert polled(two) == 0
        settle(one, two)
        assert set(given_up) == set(two.assignment())
        assert set(one.assignment()) == stays - set(given_up)
        with pytest.raises(MemberFenced, match=r"does not own clicks/\d any more"):
            one.commit(dict.fromkeys([given_up[0], *one.assignment()], 0))
        assert one.committed(*one.assignment()[0])
        assert polled(two) == 0  # it was committed


def test_a_member_that_sleeps_too_long_is_fenced_and_joins_anew(log, clock):
    put(log, 100)
    with log.consumer("a", "clicks", session="10 seconds") as one, log.consumer("a", "clicks") as two:
        polled(one)
        clock.advance(11)
        assert polled(two) == 100
        two.commit()
        with pytest.raises(MemberFenced, match="clicks/"):
            one.commit()
        settle(one, two)
        assert len(one.assignment()) == len(two.assignment()) == 2
        put(log, 100)
        assert polled(one) + polled(two) == 100
        one.commit()


def test_even_alone_a_member_whose_session_has_run_out_commits_nothing(log, clock):
    put(log, 10)
    with log.consumer("a", "clicks", session="10 seconds") as one:
        polled(one)
        clock.advance(10)
        with pytest.raises(MemberFenced):
            one.commit()
        assert polled(one) == 10
        one.commit()


def test_the_partitions_of_a_dead_process_go_to_others_at_once(tmp_path):
    with Log(tmp_path / "log") as log:
        log.create_topic("clicks", "id bigint", partitions=2, key="id")
        put(log, 50)
        process = subprocess.Popen([sys.executable, str(MEMBER), str(tmp_path / "log"), str(tmp_path / "seen")])
        while not any((tmp_path / "seen").glob("*")):
            time.sleep(0.01)
        with log.consumer("a", "clicks", session="10 minutes") as two:
            process.send_signal(signal.SIGKILL)
            process.wait()
            deadline = time.monotonic() + 60
            while len(two.assignment()) < 2:
                two.poll(wait="100 milliseconds")
                assert time.monotonic() < deadline


def test_a_group_begins_at_the_end_where_it_is_told_to_and_skips_nothing_then(log):
    put(log, 10)
    with log.consumer("a", "clicks", offset_reset="latest") as consumer:
        assert polled(consumer) == 0
    put(log, 5)
    with log.consumer("a", "clicks", offset_reset="latest") as consumer:
        assert polled(consumer) == 5


def test_seek_pause_and_time(log, clock):
    put(log, 100)
    clock.advance(3600)
    later = clock.now() // 1000
    put(log, 10)
    with log.consumer("a", "clicks") as consumer:
        polled(consumer)
        partition = max(log.topic("clicks").end_offsets(), key=log.topic("clicks").end_offsets().get)
        consumer.seek("clicks", partition, 0)
        assert polled(consumer) == log.topic("clicks").end_offsets()[partition]
        consumer.seek_to_time(later)
        consumer.pause([("clicks", partition)])
        first = polled(consumer)
        consumer.resume()
        assert 0 < first < 10 == first + polled(consumer)
        assert consumer.position("clicks", partition) == log.topic("clicks").end_offsets()[partition]
        with pytest.raises(InvalidArgument, match="behind the end"):
            consumer.seek("clicks", partition, 1000)
        for topic, why in (("views", "none of this member's partitions"), (["clicks"], "no text")):
            with pytest.raises(InvalidArgument, match=why):
                consumer.position(topic, 0)
        with pytest.raises(InvalidArgument, match="no partitions"):
            consumer.pause("clicks")
        with pytest.raises(InvalidArgument, match="no offset"):
            consumer.commit({("clicks", partition): 1000})


def test_partitions_that_are_added_and_topics_that_are_made_again_are_followed(log, clock):
    put(log, 20)
    with log.consumer("a", "clicks") as consumer:
        polled(consumer)
        consumer.commit()
        log.topic("clicks").add_partitions(6)
        put(log, 600)
        clock.advance(1)
        assert polled(consumer) == 600
        assert len(consumer.assignment()) == 6
        consumer.commit()
        log.delete_topic("clicks")
        log.create_topic("clicks", "id bigint", partitions=2)
        put(log, 3)
        clock.advance(1)
        assert polled(consumer) == 3
        log.delete_topic("clicks")
        clock.advance(1)
        with pytest.raises(UnknownTopic):
            consumer.poll()
        log.create_topic("clicks", "id bigint")


def test_records_that_retention_deleted_are_counted_and_a_commit_behind_the_end_is_an_error(log, clock):
    topic = log.create_topic("short", "id bigint", retention="1 hour")
    topic.append([{"id": 1}])
    with log.consumer("a", "short") as consumer:
        consumer.pause()
        consumer.poll()
        clock.advance(7200)
        topic.clean()
        topic.append([{"id": 2}])
        consumer.resume()
        assert [records.rows.column("id").to_pylist() for records in consumer.poll()] == [[2]]
        assert consumer.lost == 1
        consumer._members.reset({("short", 0): 99}, {"short": topic.id})
    with log.consumer("a", "short") as consumer, pytest.raises(OffsetOutOfRange):
        consumer.poll()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group": "a/b"}, InvalidName),
        ({"topics": []}, InvalidArgument),
        ({"topics": ["clicks", "nope"]}, UnknownTopic),
        ({"offset_reset": "middle"}, InvalidArgument),
        ({"assignor": "luck"}, InvalidArgument),
    ],
)
def test_impossible_options_are_refused(log, options, error):
    with pytest.raises(error):
        log.consumer(**({"group": "g", "topics": "clicks"} | options))


def test_a_group_is_not_shared_between_machines_and_nobody_survives_a_start_of_the_machine(log):
    put(log, 10)
    with log.consumer("a", "clicks") as consumer:
        polled(consumer)
        consumer.commit()
        with consumer._members.state.change() as sql:
            sql.execute("UPDATE facts SET value = 'another machine' WHERE name = 'boot'")
        with pytest.raises(GroupElsewhere, match="another machine"):
            log.consumer("a", "clicks")
    put(log, 5)
    with log.consumer("a", "clicks") as consumer:
        assert polled(consumer) == 5


def test_groups_are_looked_at_and_reset(log):
    put(log, 100)
    with log.consumer("a", "clicks") as consumer, log.queue("q", "clicks") as queue:
        polled(consumer, 40)
        consumer.commit()
        queue.ack(queue.take(10)[:4])
        found = {each.name: each for each in groups_of(log, now=log.clock.now())}
        assert (found["a"].members, found["a"].lag, found["a"].kind) == (1, 60, "consumers")
        assert {each.process for each in found["a"].partitions} == {os.getpid()}
        assert (found["q"].lag, found["q"].work.leased) == (96, 6)
        with pytest.raises(GroupInUse):
            reset_group(log, "a", {("clicks", 0): 0})
    reset_group(log, "a", {("clicks", number): 0 for number in range(4)})
    (state,) = group_named(log, "a", now=log.clock.now())
    assert (state.members, state.lag) == (0, 100)
    with pytest.raises(UnknownGroup, match="b"):
        group_named(log, "b", now=log.clock.now())


def test_a_reset_is_of_all_partitions_and_commits_of_a_topic_that_was_made_again_are_none(log):
    put(log, 5, "views")
    with log.consumer("a", ["clicks", "views"]) as consumer:
        assert polled(consumer) == 5
        consumer.commit()
    log.delete_topic("views")
    topic = log.create_topic("views", "id bigint", partitions=3)
    topic.append([{"id": 1}, {"id": 2}], partition=0)
    topic.append([{"id": 3}], partition=2)
    (state,) = group_named(log, "a", now=log.clock.now())
    views = [(each.next, each.lag) for each in state.partitions if each.topic == "views"]
    assert views == [(None, 2), (None, 0), (None, 1)]
    reset_group(log, "a", {("views", 0): 1, ("views", 2): 1})
    with log.consumer("a", "views") as consumer:
        assert [records.rows.column("id").to_pylist() for records in consumer.poll()] == [[2]]
        assert consumer.committed("clicks", 3) == 0, "what was not reset stays"


def test_a_queue_of_an_older_version_and_one_that_is_being_made_are_looked_at(log):
    put(log, 8)
    with log.queue("q", "clicks") as queue:
        queue.ack(queue.take(8)[:4])
        queue.release(queue.take(4))
    file = log.path / "queues/q/clicks/queue.db"
    with closing(sqlite3.connect(file)) as sql:
        sql.execute("DROP TABLE spans")
    (file.parent.with_name("other")).mkdir()
    (file.parent.with_name("other") / "queue.db").touch()
    old, new = groups_of(log, now=log.clock.now())
    assert (old.name, old.lag, old.work.ready) == ("q", 4, 4)
    assert (new.name, new.lag, new.work) == ("q", 0, (0, 0, 0, 0))
    with log.queue("q", "clicks") as queue:
        assert len(queue.take(8)) == 4


# ---- assignors ---------------------------------------------------------------------------------------------

GROUPS = st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from(["x", "y", "z"]), min_size=1), max_size=6)
SIZES = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in "xyz"})


@given(GROUPS, SIZES, st.sampled_from(sorted(ASSIGNORS)), st.data())
def test_every_partition_that_somebody_wants_has_one_member_that_wants_it(members, sizes, name, data):
    places = [(topic, number) for topic, size in sizes.items() for number in range(size)]
    owners = data.draw(st.fixed_dictionaries({place: st.sampled_from(["", *"abcdefg"]) for place in places}))
    found = ASSIGNORS[name](places, members, owners)
    wanted = {topic for topics in members.values() for topic in topics}
    assert found.keys() == {place for place in places if place[0] in wanted}
    assert all(place[0] in members[member] for place, member in found.items())
    assert found == ASSIGNORS[name](places, members, owners)


@given(st.integers(1, 8), st.integers(0, 30), st.integers(0, 8))
def test_a_sticky_assignment_is_even_and_moves_no_more_than_it_must(before, partitions, after):
    places = [("x", number) for number in range(partitions)]
    old = ASSIGNORS["sticky"](places, {f"m{n}": {"x"} for n in range(before)}, {})
    new = ASSIGNORS["sticky"](places, {f"m{n}": {"x"} for n in range(after)}, old)
    if not after:
        assert not new
        return
    counts = Counter(new.values())
    assert partitions // after <= min(counts[f"m{n}"] for n in range(after))
    assert max(counts.values(), default=0) <= -(-partitions // after)
    shared = min(before, after)
    stays = sum(min(Counter(old.values())[f"m{n}"], -(-partitions // after)) for n in range(shared))
    assert sum(new[place] == old[place] for place in places) >= stays - shared


# ---- any schedule --------------------------------------------------------------------------------------------


class _Schedule:
    """Members come, go, sleep and die, in an order that a seed gives."""

    def __init__(self, folder, seed):
        self.draw = random.Random(seed)  # noqa: S311
        self.clock = ManualClock()
        self.log = Log(folder, clock=self.clock, fsync=False)
        self.log.create_topic("t", "id bigint", partitions=self.draw.randint(1, 6), key="id")
        self.assignor = self.draw.choice(sorted(ASSIGNORS))
        self.members = {}
        self.number = 0
        self.processed = defaultdict(set)  # by (partition, offset, generation): who
        self.done = defaultdict(set)  # by partition: offsets whose work is done
        self.put = 0

    def play(self, steps):
        for _ in range(steps):
            getattr(self, self.draw.choice([*["poll"] * 8, *["append"] * 2, "come", "go", "die", "sleep", "late"]))()
        self.clock.advance(100)
        self.come()
        while self._committed() != self.log.topic("t").end_offsets():
            for name in list(self.members):
                self._poll(name)
            self.clock.advance(0.2)
        for number, end in self.log.topic("t").end_offsets().items():
            assert self.done[number] >= set(range(end))
        assert all(len(who) == 1 for who in self.processed.values())
        for member in self.members.values():
            member.close()
        self.log.close()

    def append(self):
        count = self.draw.randint(1, 30)
        self.log.topic("t").append([{"id": self.draw.randrange(1000)} for _ in range(count)])

    def come(self):
        self.number += 1
        self.members[self.number] = self.log.consumer("g", "t", assignor=self.assignor, session="10 seconds")

    def go(self):
        if self.members:
            self.members.pop(self.draw.choice(list(self.members))).close()

    def die(self):
        """End without a word, as a killed process."""
        if self.members:
            member = self.members.pop(self.draw.choice(list(self.members)))
            member._stop.set()
            member._thread.join()
            if member._members.life is not None:
                os.close(member._members.life._fd)
                member._members.life._fd = -1
            member._members.close()

    def sleep(self):
        self.clock.advance(self.draw.choice([0.2, 3, 11]))

    def late(self):
        """Somebody polls, sleeps while others poll, and commits."""
        if self.members:
            name = self.draw.choice(list(self.members))
            self._poll(name, between=lambda: self._others(name))

    def _others(self, name):
        self.clock.advance(self.draw.choice([1, 11]))
        for other in [each for each in self.members if each != name]:
            self._poll(other)

    def poll(self):
        if self.members:
            self._poll(self.draw.choice(list(self.members)))
            self.clock.advance(0.11)

    def _poll(self, name, between=lambda: None):
        member = self.members[name]
        found = member.poll(self.draw.randint(1, 40))
        generation = member._members.generation()
        work = [(each.partition, offset) for each in found for offset in each.rows.column("_offset").to_pylist()]
        for partition, offset in work:
            self.processed[partition, offset, generation].add(name)
        between()
        ends = {("t", each.partition): each.rows.column("_offset")[-1].as_py() + 1 for each in found}
        before = self._committed()
        try:
            member.commit(ends)
        except MemberFenced:
            assert self._committed() == before
            return
        for partition, offset in work:
            self.done[partition].add(offset)
        for number, offset in self._committed().items():
            assert self.done[number] >= set(range(offset or 0)), "a record was skipped"

    def _committed(self):
        state = [each for each in groups_of(self.log, now=self.clock.now()) if each.name == "g"]
        return {one.partition: one.next for one in state[0].partitions} if state else {}


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(100, 1100), marks=pytest.mark.prove)], ids=str)
def test_in_any_schedule_nothing_is_skipped_and_a_fenced_member_commits_nothing(tmp_path, seeds):
    for seed in seeds:
        _Schedule(tmp_path / str(seed), seed).play(60)


def test_killed_and_stopped_processes_skip_nothing(tmp_path):
    """Members are killed or stopped for longer than their session while records are appended."""
    draw = random.Random(2)  # noqa: S311
    with Log(tmp_path / "log", fsync=False) as log:
        log.create_topic("clicks", "id bigint", partitions=4, key="id")
        seen = tmp_path / "seen"
        command = [sys.executable, str(MEMBER), str(tmp_path / "log"), str(seen), "1 second"]
        processes = [subprocess.Popen(command) for _ in range(3)]
        try:
            for _ in range(8):
                put(log, 500)
                time.sleep(draw.uniform(0.1, 0.5))
                victim = processes.pop(draw.randrange(3))
                if draw.random() < 0.5:
                    victim.send_signal(signal.SIGSTOP)
                    time.sleep(1.2)
                    victim.send_signal(signal.SIGCONT)
                    processes.append(victim)
                else:
                    victim.kill()
                    victim.wait()
                    processes.append(subprocess.Popen(command))
            deadline = time.monotonic() + 120
            while not (states := groups_of(log, now=log.clock.now())) or states[0].lag:
                assert time.monotonic() < deadline, states
                time.sleep(0.1)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        lines = [line for path in seen.iterdir() for line in path.read_text().split("\n")[:-1]]
        done = Counter(lines)
        for number, end in log.topic("clicks").end_offsets().items():
            assert all(done[f"{number} {offset}"] for offset in range(end))
