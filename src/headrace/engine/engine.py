"""The engine: runs an app one epoch after the other, on any carrier.

    begin    plan the epoch: its records, its watermarks, the state that it builds on
    (the carrier runs the levels and returns reports)
    commit   link one file into place: from now on the epoch has happened
    publish  pass its staged rows to the sinks; repeated after a crash

Invariants: a committed epoch is never computed again; nothing is visible before its commit; the next epoch begins when
this one is published.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.errors import InternalError, PlanError
from headrace.connect.embedded import log_path
from headrace.connect.source import from_json, to_json
from headrace.engine import private
from headrace.engine.epoch import PlannedEpoch, Settings
from headrace.engine.forgotten_rows import ForgottenRows
from headrace.engine.inputs import Inputs, read_schemas
from headrace.engine.lowering import lower
from headrace.engine.outcomes import counts_of, heads_after, least_waiting_times, steps_that_end, waits_for_clock
from headrace.engine.outside import Outside
from headrace.engine.pace import Took, add_counts, first_rows, most_rows, next_limit, with_publishing
from headrace.engine.profile import Profile
from headrace.engine.program.adopting import PLAN, adopt, finish
from headrace.engine.program.comparing import changes
from headrace.engine.program.fill import fill_of, filled, partial_steps
from headrace.engine.program.identity import fingerprint, identity
from headrace.engine.program.reset import resume
from headrace.engine.publish import Publisher, check_published, with_rows
from headrace.engine.recovery.fencing import check_fence, fence_after
from headrace.engine.recovery.journal import Journal
from headrace.engine.recovery.lost_epochs import (
    as_decided,
    check_marks,
    check_program,
    check_repeatable,
    recovered,
    tell_if_new,
)
from headrace.engine.recovery.same_sources import agree_on_sources, check_instances, check_offsets, keep_marks
from headrace.engine.recovery.view_damage import check_views
from headrace.engine.served import agree_on_views
from headrace.engine.storage import Commit, SourceProgress, Storage
from headrace.engine.watermarks import UNPARTITIONED, advance, ahead, empty_epoch_due
from headrace.kernels.state.state import DELTA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.engine.watermarks import SourceWatermark
    from headrace.kernels.program import Program
    from headrace.kernels.task import Report
    from headrace.plan.nodes import Node
    from headrace.plan.plan import Plan

LOOK_AT_LOGS = 16
"""Every so many epochs redo logs are counted."""


class Engine:
    """Runs a plan on a storage. A storage has one engine at a time; call `close` when done.

    With `held` the caller has locked the storage, and releases it after `close`.
    """

    def __init__(self, plan: Plan, settings: Settings, held: Storage | None = None) -> None:
        self.plan = plan
        self.settings = settings
        self.storage = held or Storage(settings.storage, plan.app, sync=settings.sync)
        self._releases = held is None
        if held is None:
            self.storage.acquire()
        try:
            self._open()
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        if self._releases:
            self.storage.release()

    def _open(self) -> None:
        finish(self.storage, self.settings.fault)
        resume(self.storage)
        self.shards = self._agreed_shards()
        self._app = {"id": self.storage.about()["id"], "shards": self.shards}
        self.program, self.ahead = lower(self.plan, self.shards), ahead(self.plan)
        s = self.settings
        self.journal = Journal(log_path(s.storage, s.topics).absolute(), self.plan.app, self._app["id"])
        last, self.lost = recovered(self.storage, self.journal)
        self._check_program(last)
        agree_on_views(self.storage, self.plan.views, last=last)
        count = s.partitions or self.shards
        self.outside = Outside(
            self.plan, s.storage, s.topics, clock=s.clock, sync=s.sync, partitions=count, fault=s.fault
        )
        self.topics, self.views = self.outside.topics, self.outside.views
        agree_on_sources(self.storage, self.outside.inputs, last)
        self.outside.replays = s.upto is not None
        self.outside.prepare_sources()
        last = self._adopt_program(last)
        views = self.views.names()
        if self.views.applied() >= 0:  # else all is lost: below
            check_views(self.views.where, self.plan, last, views)  # before the lost ones are created, without rows
        self.outside.prepare_sinks()
        if self.outside.origins:
            private.remember(self.plan, self.storage, self.outside)
        self.inputs = Inputs(self.outside.inputs, clock=s.clock, upto=s.upto)
        check_offsets(self.inputs, last)
        read = read_schemas(self.outside.inputs, self.program)
        self.first_rows, self.most_rows = first_rows(read), most_rows(read)
        groups = self.outside.open_sink_groups(f"{self.plan.app}/{self.storage.about()['id']}")
        check_published(groups, self.storage, last, self._known(last))
        if last is None and not self.lost:
            tell_if_new(self.storage, self.topics, self._app["id"])
        check_views(self.views.where, self.plan, last, views)
        self.publisher = Publisher(self.storage, groups, s.clock, s.fault)
        self.forgotten = ForgottenRows(self.plan, self.storage, self.shards, groups if s.upto is None else ())
        self.profile = Profile(self.shards)
        self._published = (0, 0.0)  # the rows of the last epoch, and the seconds that publishing it took
        self._recover(last)
        self.fill = None if last is None else fill_of(self.plan, self.last, views, self.last.refill)

    def _known(self, last: Commit | None) -> int:
        """Return the last epoch that is known to have happened.

        Raises:
            EpochsLost: output topics have an epoch that neither the commits nor the journal have.

        """
        known = self.lost[-1].epoch if self.lost else -1 if last is None else last.epoch
        if self.journal.last_epoch() is None:  # an older version wrote none, or it is lost
            check_marks(self.storage, self.outside.log, self._app["id"], last)
        return known

    def _agreed_shards(self) -> int:
        about = self.storage.about()
        if about.get("shards") is None:
            self.storage.write_json("app.json", {**about, "shards": self.settings.shards})
            return self.settings.shards
        return int(about["shards"])

    def _check_program(self, last: Commit | None) -> None:
        """Refuse a program that would mix results.

        Raises:
            PlanChanged: what changed, what it would mix, and what is safe to do.
            EpochsLost: lost epochs ran with another program.

        """
        self._fingerprint = fingerprint(identity(self.plan, self.settings.shards))
        check_program(self.storage, last, self.lost, self._fingerprint)
        stored = self.storage.read_json(PLAN)
        self.changes = changes(self.plan, stored, last, shards=self.settings.shards)
        self.changes.refuse()

    def _adopt_program(self, last: Commit | None) -> Commit | None:
        """Make the storage that of this program; return the last commit, which may have been replaced."""
        adopt(self.plan, self.storage, self.changes, last, self.settings.fault)
        return None if last is None else self.storage.read_commit(last.epoch)

    def read_of(self, step: str) -> int:
        """Return how many offsets of a source the committed epochs have read."""
        return sum(self.last.sources[step].offsets.values()) if step in self.last.sources else 0

    def _recover(self, last: Commit | None) -> None:
        """Publish the last commit again, and remove the files of attempts after it."""
        if self.storage.took_over:
            last = self._fence(last)
        if last is not None:
            self.storage.settle(last)
        self.storage.forget_uncommitted(None if last is None else last.epoch)
        if last is None:
            self.last = self._blank()
            self.storage.forget_state({})
            return
        self.last = last
        self.storage.forget_state(self.last.heads)
        self.publish(self.last)

    def _fence(self, last: Commit | None) -> Commit:
        """Publish the last commit, then commit an epoch by which this process takes the app over."""
        check_fence(self.storage, self.outside.inputs, lost=bool(self.lost))
        if last is not None:
            self.publish(last)
        fence = fence_after(last or replace(self._blank(), app=self._app, program=self._fingerprint), now=self._now())
        self.storage.write_commit(fence, self.settings.fault)
        return fence

    def _blank(self) -> Commit:
        """Return the commit before the first: nothing read, no watermark."""
        steps = {self.plan.name(node): None for node in self.plan.stateful()}
        return Commit(epoch=-1, limit=self.first_rows, watermarks=dict(steps), previous=dict(steps))

    def settle(self) -> None:
        """Leave nothing to redo logs: the files that the last commit needs are on the disk."""
        self.storage.settle(self.last)

    def close(self) -> None:
        """Close sinks, sources and topics, and release the storage."""
        for group in self.publisher.groups:
            group.writer.close()
        self.journal.close()
        self.inputs.close()
        self.outside.close()
        self._release()

    # ---- begin ----

    def begin(self, *, limit: int | None = None) -> PlannedEpoch:
        """Plan the next epoch: unread records, up to `limit` rows (default: the limit of the last commit)."""
        if self.lost:
            raise InternalError("lost epochs run again before the next one begins: open_engine")
        self.settings.fault("before_bounds")
        before, bounds = self.before, self.inputs.bounds(self.before)
        self.settings.fault("after_bounds")
        ranges = self.inputs.unread(before, bounds, limit if limit is not None else before.limit)
        return PlannedEpoch(
            epoch=before.epoch + 1,
            ranges=tuple(ranges),
            bounds=bounds,
            before=before,
            began=self.settings.clock.monotonic(),
            now=self.epoch_time(),
            reached=self.inputs.reaches(self.ahead, before, ranges, bounds, self.settings.until),
        )

    def begin_lost(self) -> PlannedEpoch:
        """Plan the first lost epoch as it ran the first time.

        Raises:
            EpochsLost: its records are gone.

        """
        decided, before = self.lost[0], self.before
        check_repeatable(self.storage, self.inputs, self.last, decided)
        return PlannedEpoch(
            epoch=decided.epoch,
            ranges=tuple(from_json(decided.ranges)),
            bounds={},
            before=before,
            began=self.settings.clock.monotonic(),
            now=decided.now,
            reached=decided.reached,
            decided=decided,
        )

    @property
    def before(self) -> Commit:
        """The commit that the next epoch builds on."""
        return self._with_new_steps(self.last)

    def _with_new_steps(self, commit: Commit) -> Commit:
        """Add steps that are new in the plan to the last commit, without a watermark."""
        steps = [self.plan.name(node) for node in self.plan.stateful()]
        return replace(
            commit,
            partial=sorted(partial_steps(self.plan, commit)),
            watermarks={step: commit.watermarks.get(step) for step in steps},
            previous={step: commit.previous.get(step) for step in steps},
        )

    def move_watermark(self, step: str, time: int | None) -> bool:
        """Let a step work with a watermark in the next epoch, if that is later; return whether it is."""
        before = self.last.watermarks.get(step)
        later = time is not None and (before is None or time > before)
        if later:
            self.last = replace(self.last, watermarks={**self.last.watermarks, step: time})
        return later

    @property
    def needs_no_epoch(self) -> bool:
        """Whether another epoch would change nothing: all is read, and every step has worked with its watermark."""
        return self.caught_up and not self.before.watermarks_moved

    @property
    def caught_up(self) -> bool:
        """Whether another epoch would emit nothing; steps may still have state to evict."""
        return self.has_caught_up(again=False)

    def has_caught_up(self, *, again: bool) -> bool:
        """Whether another epoch would emit nothing; `again` asks far sources, whose last answer serves for a while."""
        due = self.before.due or self.forgotten.due_after(self.last)
        return not due and not self.inputs.need_epoch(self.before, self._now(), again=again)

    def _now(self) -> int:
        return self.settings.clock.now()

    def epoch_time(self) -> int:
        """Return the time of the next epoch: the clock may have been set back, epochs go on."""
        return max(self._now(), self.last.now)

    # ---- commit ----

    def commit(self, planned: PlannedEpoch, reports: Sequence[Report], *, carrier: str, ended: bool = False) -> Commit:
        """Commit an epoch: from now on it is never computed again.

        Raises:
            Fenced: another process has taken the app over.

        """
        sources = self._advanced_sources(planned, reports, ended=ended)
        used = planned.before.watermarks
        now = self._now()
        bounds = self.inputs.bounds_again(sources, planned.bounds, now)
        source_watermarks = self.inputs.watermarks(sources, planned.before.outputs, bounds, now, planned.now)
        heads = heads_after(planned.before.heads, reports)
        keeps, waiting = steps_that_end(heads), least_waiting_times(heads)
        outputs, watermarks = self._advanced(planned, source_watermarks, waiting)
        lost = self.inputs.lost(planned.before, planned.ranges)
        counts = counts_of(reports, heads, read=planned.ranges, lost=lost)
        seconds = self.settings.clock.monotonic() - planned.began
        self.profile.ran(planned.rows, seconds, reports)
        commit = Commit(
            epoch=planned.epoch,
            app=self._app,
            program=self._fingerprint,
            ranges=to_json(planned.ranges),
            sources=sources,
            watermarks=watermarks,
            previous=dict(used),
            outputs=outputs,
            reached=dict(planned.reached),
            idle={name: watermark.idle for name, watermark in source_watermarks.items()},
            waiting=waits_for_clock(self.plan, keeps, waiting),
            due=empty_epoch_due(self.plan, used, watermarks, keeps, planned.reached),
            heads=heads,
            staged=[staged for report in reports for staged in report.staged],
            published=with_rows(planned.before),
            sinks=[sink.name for sink in self.plan.sinks],
            partial=planned.before.partial,
            counts=counts,
            totals=add_counts(planned.before.totals, counts),
            rows=planned.rows,
            seconds=seconds,
            limit=next_limit(
                planned.before.limit,
                Took(planned.rows, with_publishing(seconds, planned.rows, self._published)),
                before=Took(planned.before.rows, planned.before.seconds),
                most=self.most_rows,
            ),
            at=self._now(),
            now=planned.now,
            carrier=carrier,
        )
        if planned.decided is not None:
            commit = as_decided(commit, planned.decided)
        commit = self.forgotten.added(commit, planned.before)
        self._write(commit)
        self.lost = self.lost[1:]
        self.settings.fault("before_acknowledge")
        self.inputs.committed(commit)
        self.settings.fault("after_acknowledge")
        return commit

    def _advanced(
        self, planned: PlannedEpoch, sources: Mapping[str, SourceWatermark], waiting: Mapping[str, int]
    ) -> tuple[dict[str, int | None], dict[str, int | None]]:
        outputs, watermarks = advance(self.plan, sources, planned.before.watermarks, waiting, self.settings.until)
        for step, time in planned.reached.items():  # also if records vanish before they are read
            watermarks[step] = max(time, watermarks.get(step) or time)
        return outputs, watermarks

    def _write(self, commit: Commit) -> None:
        began = self.settings.clock.monotonic()
        self.storage.write_commit(commit, self.settings.fault)
        self.profile.spend("commit", self.settings.clock.monotonic() - began)
        self.last = commit
        self.settings.fault("after_commit")

    def _advanced_sources(
        self, planned: PlannedEpoch, reports: Sequence[Report], *, ended: bool
    ) -> dict[str, SourceProgress]:
        now, instances = self._now(), check_instances(self.inputs.inputs, planned.before)
        sources = {name: deepcopy(planned.before.sources.get(name, SourceProgress())) for name in self.inputs.inputs}
        for name, progress in sources.items():
            progress.ended = progress.ended or ended
            progress.instance = instances.get(name)
            partitions = planned.bounds[name].end if name in planned.bounds else [UNPARTITIONED]
            for partition in sorted({*progress.active, *partitions}):  # the clock may have been set back
                progress.active[partition] = min(now, progress.active.get(partition, now))
        for name, bounds in planned.bounds.items():  # where reading begins is decided once
            starts = self.inputs.starts(name, sources[name].offsets, bounds) or {}
            sources[name].offsets |= {p: bounds.earliest[p] for p in starts if p in bounds.earliest}
        for offsets in planned.ranges:
            sources[offsets.source].offsets[offsets.partition] = offsets.end
            sources[offsets.source].active[offsets.partition] = now
        keep_marks(sources, planned.ranges, reports)
        for report in reports:
            for name, times in report.times.items():
                for partition, time in times.items():
                    sources[name].observe(partition, time, now)
        return sources

    # ---- filling ----

    def begin_fill(self) -> PlannedEpoch:
        """Plan the epoch that fills what is new in the app; it reads no record. Call it where `fill` is not None."""
        assert self.fill is not None  # noqa: S101 -- the caller asks
        return self.planned_without_input(self.fill.before(self.before))

    def planned_without_input(self, before: Commit) -> PlannedEpoch:
        """Return the plan of an epoch that reads no record and builds on a commit."""
        began = self.settings.clock.monotonic()
        return PlannedEpoch(
            epoch=before.epoch + 1, ranges=(), bounds={}, before=before, began=began, now=self.epoch_time()
        )

    def fill_program(self) -> Program:
        """Return the program of that epoch."""
        assert self.fill is not None  # noqa: S101 -- the caller asks
        return lower(self.fill.plan, self.shards, snapshots=self.fill.snapshots, begins=self.fill.steps)

    def commit_fill(self, planned: PlannedEpoch, reports: Sequence[Report], *, carrier: str) -> Commit:
        """Commit that epoch: from now on nothing is to be filled.

        Raises:
            FileExistsError: the epoch is committed already.

        """
        assert self.fill is not None  # noqa: S101 -- the caller asks
        commit = filled(self.plan, self.fill, planned.before, reports)
        return self.commit_grafted(commit, planned, carrier=carrier)

    def commit_grafted(self, commit: Commit, planned: PlannedEpoch, *, carrier: str) -> Commit:
        """Commit an epoch that fills what is new, or takes over what was replayed; all but its time is known."""
        commit = replace(
            commit,
            app=self._app,
            program=self._fingerprint,
            published=with_rows(planned.before),
            seconds=self.settings.clock.monotonic() - planned.began,
            at=self._now(),
            now=planned.now,
            carrier=carrier,
            forgotten=planned.before.forgotten or self.forgotten.unknown(),
        )
        if commit.replaced:  # a view may become empty; without staged rows it would pass for published
            self.storage.staging(commit.epoch).mkdir(parents=True, exist_ok=True)
        if self.lost:
            commit = as_decided(commit, self.lost[0])
        self._write(commit)
        self.lost = self.lost[1:]
        self.fill = None
        return commit

    # ---- publish ----

    def publish(self, commit: Commit) -> None:
        """Publish a committed epoch to the sinks, then remove its staged rows.

        Without staged rows the epoch is published already.
        """
        if self.settings.upto is None:
            self.journal.append(commit)
        self.settings.fault("after_journal")
        if self.storage.staging(commit.epoch).is_dir():
            began = self.settings.clock.monotonic()
            self.publisher.publish(commit)
            self._published = commit.rows, self.settings.clock.monotonic() - began
            self.profile.spend("publish", self._published[1])
        self.storage.forget_staged(commit.epoch)
        self._tidy(commit)
        if commit.epoch % LOOK_AT_LOGS == 0:
            self.storage.settle(commit, if_due=True)

    def _tidy(self, commit: Commit) -> None:
        """Remove the state files that a full file of this epoch replaced."""
        for step, heads in commit.heads.items():
            for shard, head in heads.items():
                if head.file.startswith(f"{commit.epoch:012d}-") and not head.file.endswith(DELTA):
                    self.storage.forget_files(step, shard, head, before=commit.epoch)

    # ---- for tests and status ----

    def node(self, step: str) -> Node:
        """Return the plan's node of a step's name.

        Raises:
            PlanError: there is no such step.

        """
        for node in self.plan.nodes:
            if self.plan.name(node) == step:
                return node
        names = ", ".join(self.plan.names.values())
        raise PlanError(f'there is no step "{step}"', detail=f"The steps are: {names}.")
