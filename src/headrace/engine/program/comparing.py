"""Compares a program with what `plan.json` and the last commit say of the one before it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.base.schema import wider_integer
from headrace.connect.bounded import KIND
from headrace.engine.program.adopting import NOTE, PLAN, moved
from headrace.engine.program.changes import Change, ProgramChanges
from headrace.engine.program.differences import difference, longer_grace, place, shown_offsets, wider
from headrace.engine.program.fill import history, new_steps
from headrace.engine.program.identity import FORMAT, ORDERS, identity
from headrace.engine.program.rebuilding import with_rebuilds
from headrace.engine.storage import Storage
from headrace.plan.chains import Chain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from headrace.engine.storage import Commit
    from headrace.plan.nodes import Node, Stateful
    from headrace.plan.plan import Plan


def changes(plan: Plan, stored: Mapping[str, Any] | None, last: Commit | None, *, shards: int) -> ProgramChanges:
    """Compare a program with the one that its storage was written by.

    Args:
        plan: the program that would start.
        stored: the content of `plan.json`; what an older version did not write is not compared.
        last: the last commit; before the first there is nothing that a change could mix.
        shards: how many parts the program wants its state to be cut into.

    """
    if stored is None:
        return ProgramChanges(app=plan.app, since=None if last is None else last.epoch)
    whole = tuple(_of_the_app(plan.app, stored, shards))
    if whole or last is None:
        return ProgramChanges(app=plan.app, since=None if last is None else last.epoch, entries=whole)
    moves, refused = _moves(plan, stored, last)
    comparison = _Comparison(plan, stored, last, moves)
    entries = (*refused, *comparison.steps(), *comparison.sinks(), *comparison.sources(), *comparison.gone())
    entries, rebuilt = with_rebuilds(plan, entries, comparison.new)
    return ProgramChanges(
        app=plan.app,
        since=last.epoch,
        entries=entries,
        moves=moves,
        later=comparison.later,
        rebuilt_steps=rebuilt.steps,
        rebuilt_sinks=rebuilt.sinks,
    )


def compared(plan: Plan, path: Path, shards: int | None = None) -> ProgramChanges:
    """Compare a program with its storage as it is now, without touching it: also while the app runs.

    Args:
        plan: the program.
        path: the storage.
        shards: how many parts the program wants its state to be cut into; None: as many as there are.

    Raises:
        DamagedFile: a file of the storage cannot be read.

    """
    storage = Storage(path, plan.app)
    note = storage.read_json(NOTE)
    stored = storage.read_json(PLAN) if note is None else note["plan"]
    newest = storage.last_epoch()
    last = None if newest is None else storage.read_commit(newest)
    if last is not None and note is not None:
        last = moved(last, note)
    return changes(plan, stored, last, shards=shards or int(storage.about().get("shards") or 0))


def _of_the_app(app: str, stored: Mapping[str, Any], shards: int) -> Iterator[Change]:
    this = Change(part="app", name=app)
    if stored["format"] != FORMAT:
        what = f'the state of app "{app}" was written in format {stored["format"]}, this version writes {FORMAT}'
        yield this.refused("changed", what, hint="Run it with the version that wrote it, or reset the app.")
    elif stored["shards"] not in {None, shards}:
        what = f'the state of app "{app}" is cut into {stored["shards"]} shards, not {shards}'
        detail = "A row's shard follows from their number, so state would be looked for in the wrong place."
        hint = f"Say hr.App(…, shards={stored['shards']}) or leave shards out; or reset the app."
        yield this.refused("changed", what, detail, hint=hint)


# ---- state that moves to another name ----


def _moves(plan: Plan, stored: Mapping[str, Any], last: Commit) -> tuple[dict[str, str], list[Change]]:
    """Return the old names of steps whose state moves, by their new ones, and the moves that are refused."""
    names = {plan.name(node) for node in plan.stateful()}
    moves: dict[str, str] = {}
    refused = []
    for node in plan.stateful():
        new, old = plan.name(node), node.renamed_from
        if old is None or old not in stored["steps"] or (new in stored["steps"] and not last.heads.get(old)):
            continue
        why = None
        if old in names:
            why = f'The step "{old}" is in the app itself, so its state stays its own.'
        elif new in stored["steps"]:
            why = f'"{new}" has state of its own already, which the state of "{old}" would replace.'
        elif old in moves.values():
            why = f'Two steps are said to be renamed from "{old}".'
        if why is None:
            moves[new] = old
        else:
            what = f'the state of step "{old}" cannot move to step "{new}"'
            hint = f'Leave renamed_from="{old}" out; or undo what changed the names.'
            refused.append(Change(part="step", name=new).refused("moved", what, why, hint=hint))
    return moves, refused


# ---- steps, sinks, sources ----


class _Comparison:
    """One comparison. Steps whose state moves are compared under their old names."""

    def __init__(self, plan: Plan, stored: Mapping[str, Any], last: Commit, moves: Mapping[str, str]) -> None:
        self.plan = plan
        self.stored = stored
        self.last = last
        self.moves = moves
        self.now = identity(plan, stored["shards"], self._old_name)
        self.new = new_steps(plan, last) - set(moves)
        self.later: dict[str, int] = {}

    def _old_name(self, node: Node) -> str:
        name = self.plan.name(node)
        return self.moves.get(name, name)

    # -- steps

    def steps(self) -> Iterator[Change]:
        """Yield the changes of the steps with state, at least one for each."""
        for node in self.plan.stateful():
            this = Change(part="step", name=self.plan.name(node))
            yield from list(self._step(this, node)) or [this]

    def _step(self, this: Change, node: Stateful) -> Iterator[Change]:
        old = self._old_name(node)
        if old not in self.stored["steps"]:
            yield self._new_step(this, node)
            return
        if this.name != old:
            yield this.passes("moved", f'the state of step "{old}" moves to step "{this.name}"')
        if self.last.heads.get(old) and old not in self.last.watermarks:
            what = f'the stateful step "{old}" was not in the app when epoch {self.last.epoch} ran'
            detail = "Its kept state misses the rows since it was left out."
            yield this.refused("returned", what, detail, hint=f"Start it again: headrace reset FILE --step {old}")
        yield from self._identity_of_step(this, old)
        yield from self._inputs(this, self._stored_inputs(old), self.now["inputs"][old], node)

    def _stored_inputs(self, step: str) -> list[dict[str, Any]]:
        chains: list[dict[str, Any]] = self.stored.get("inputs", {}).get(step, [])
        return chains

    def _identity_of_step(self, this: Change, old: str) -> Iterator[Change]:
        was, now = self.stored["steps"][old], self.now["steps"][old]
        now = {name: value for name, value in now.items() if name in was or name not in ORDERS}  # older ones had none
        if was == now:
            return
        differs = difference(was, now)
        if wider(was, now):
            yield this.passes("changed", f'the step "{this.name}" has wider integers', f"{differs} Its state is kept.")
            return
        later = longer_grace(was, now)
        if later is not None:
            self.later[this.name] = later
            detail = f"{differs} What was closed under the old grace stays closed."
            yield this.passes("changed", f'the step "{this.name}" waits longer for late rows', detail)
            return
        yield this.refused(
            "changed",
            f'the stateful step "{old}" is not the one whose state is kept',
            f"{differs} Going on would mix old and new results.",
            hint="Undo the change; or give the step another name with .named(…), and other names to the views and "
            f"topics that it feeds; or drop its state and its views: headrace reset FILE --step {old}",
        )

    def _new_step(self, this: Change, node: Stateful) -> Change:
        """Return that a step is new, and what it is filled with.

        Refused is a new as-of join with a table whose records have been read: it would begin without these versions.
        """
        step, last = this.name, self.last
        source = next((name for name in self._versions(node) if self._has_read(name)), None)
        if source is not None and step not in last.refill and not last.replay:
            return this.refused(
                "new",
                f'the new step "{step}" would begin without the versions that were read from "{source}"',
                f"They were read up to epoch {last.epoch}; rows would find no version.",
                hint="Compute everything again from the topics: headrace reset FILE; or read them in another app.",
            )
        since = self._since([node])
        detail = _REFILLED if step in last.refill or last.replay else self._begins(node.ups, since)
        return this.passes("new", f'the step "{step}" is new', detail, since=since)

    def _begins(self, ups: Iterable[Node], since: Mapping[str, Mapping[str, int]]) -> str:
        """Return what something new over these steps begins with."""
        gives = {name: keeps for up in ups for name, keeps in history(self.plan, up, self.new).items()}
        parts = []
        for keeps, text in _FILLED.items():
            names = sorted(name for name, kept in gives.items() if kept == keeps and self._has_rows(name))
            if names:
                parts.append(text.format(", ".join(f'"{name}"' for name in names)))
        if since and "nothing" in gives.values():
            parts.append(f"It begins with the rows from {shown_offsets(since)} on.")
        return " ".join(parts)

    def _has_rows(self, step: str) -> bool:
        return bool(self.last.heads.get(self.moves.get(step, step)))

    def _versions(self, node: Stateful) -> Iterator[str]:
        """Yield the sources whose records are versions to a step."""
        if node.versions is not None:
            yield from (self.plan.name(up) for up in node.versions.walk() if not up.ups)

    def _has_read(self, source: str) -> bool:
        return source in self.last.sources and any(self.last.sources[source].offsets.values())

    # -- sinks

    def sinks(self) -> Iterator[Change]:
        """Yield the changes of the sinks, at least one for each; nothing where an older version stored none."""
        if "sinks" not in self.stored:
            return
        for sink in self.plan.sinks:
            if sink.is_probe:
                continue
            part, name = place(sink.name)
            this = Change(part=part, name=name)
            was, now = self.stored["sinks"].get(sink.name), self.now["sinks"][sink.name]
            found = [self._new_sink(this, sink.up)] if was is None else list(self._sink(this, was, now, sink.up))
            yield from found or [this]

    def _new_sink(self, this: Change, up: Node) -> Change:
        since, full = self._since([up]), f"{this.part}:{this.name}"
        if self.last.replay and this.part != "view" and full in (self.last.sinks or ()):
            level = "what differs is appended" if up.is_table else "rows that were read before are not appended again"
            return replace(this, detail=f"The app was reset: it stays as it is, and {level}.")
        again = this.part == "view" and (full in self.last.refill or self.last.replay)
        detail = _REFILLED if again else self._begins([up], since)
        return this.passes("new", f'the {this.part} "{this.name}" is new', detail, since=since)

    def _sink(self, this: Change, was: Mapping[str, Any], now: Mapping[str, Any], up: Node) -> Iterator[Change]:
        left = was.get("left after")
        if left is not None and left < self.last.epoch:
            yield self._returned(this, left, up, stays=Chain.from_json(was["input"]).stays)
        before, after = ({"key": each["key"], **(each["columns"] or {})} for each in (was, now))
        alike = set(before) == set(after) and all(
            before[column] == after[column] or wider_integer(str(before[column]), str(after[column]))
            for column in before
        )
        if not alike or was["form"] != now["form"]:
            yield this.refused(
                "changed",
                f'the {this.part} "{this.name}" has other columns, another key or another form than the one that is '
                "kept",
                difference({**before, "form": was["form"]}, {**after, "form": now["form"]}),
                hint=f"Undo the change, or give the {this.part} another name.",
            )
        yield from self._inputs(this, [was["input"]], [now["input"]], up)

    def _returned(self, this: Change, left: int, up: Node, *, stays: bool) -> Change:
        again = f'the {this.part} "{this.name}" is in the app again'
        if this.part == "view" and {*history(self.plan, up, self.new).values()} == {"all"}:
            return this.passes("returned", again, f"It is filled anew. {self._begins([up], {})}".strip())
        misses = f"the rows of the epochs {left + 1} to {self.last.epoch}"
        if stays:
            return this.passes("returned", again, f"It misses {misses}, and goes on with what comes now.")
        return this.refused(
            "returned",
            f'the {this.part} "{this.name}" was not in the app when epoch {self.last.epoch} ran',
            f"It misses {misses}: rows that were withdrawn meanwhile would stay in it.",
            hint=f"Give the {this.part} another name.",
        )

    # -- what feeds a step or a sink

    def _inputs(
        self, this: Change, was: Iterable[dict[str, Any]], now: Iterable[dict[str, Any]], node: Node
    ) -> Iterator[Change]:
        """Yield what has changed between the steps that keep rows and a step or a sink below them."""
        for before, after in zip(map(Chain.from_json, was), map(Chain.from_json, now), strict=False):
            if before.means(after):
                continue
            fresh = sorted(step for step in after.steps - before.steps if step not in self.stored["steps"])
            lost = sorted(before.steps - after.steps)
            again = self._read_again(before, after)
            was_is = f'It was "{before}", and is "{after}".'
            if str(before) == str(after):
                was_is = f'It is "{after}" as before, with other columns or another meaning.'
            if before.time and after.time and before.time != after.time:
                was_is += f" The time of its rows was {before.time}, and is {after.time}."
            if fresh and lost:
                yield self._renamed(this, lost[0], fresh[0])
            elif again is not None:
                yield _rows_twice(this, *again)
            elif before.missed != after.missed:
                yield _of_other_rows(this, was_is, before, after)
            elif before.stays and after.stays and before.changes_alike(after):
                since = self._since([node])
                what = f'what the {this.part} "{this.name}" is fed with has changed'
                rest = f"The rows from {shown_offsets(since)} on are computed in the new way, earlier ones stay as"
                yield this.passes("changed", what, f"{was_is} {rest} they are.", since=since)
            else:
                yield _mixed(this, was_is)

    def _renamed(self, this: Change, lost: str, fresh: str) -> Change:
        same = self.stored["steps"].get(lost) == self.now["steps"].get(fresh)
        move = f'Say .named("{fresh}", renamed_from="{lost}"), which moves the state' if same else "Undo the change"
        other = "" if this.part == "step" else f"; or give the {this.part} another name"
        return this.refused(
            "changed",
            f'the {this.part} "{this.name}" has the results of step "{lost}" and would be fed by the new step '
            f'"{fresh}"',
            f'"{fresh}" begins without what "{lost}" knows: its first results would replace right ones.',
            hint=f"{move}{other}.",
        )

    def _read_again(self, before: Chain, after: Chain) -> tuple[str, str] | None:
        """Return two sources of one topic, of which the second takes the place of the first, and begins anew."""
        topics = {name: source["topic"] for name, source in self.stored.get("sources", {}).items()}
        for fresh in sorted(after.sources - before.sources):
            topic = self.now["sources"][fresh]["topic"]
            for lost in sorted(before.sources - after.sources):
                if topic is not None and topics.get(lost) == topic and not self._has_read(fresh):
                    return lost, fresh
        return None

    def _since(self, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
        """Return the offsets up to which the sources of some steps have been read."""
        names = {self.plan.name(up) for node in nodes for up in node.walk() if not up.ups}
        read = {name: dict(self.last.sources[name].offsets) for name in sorted(names) if name in self.last.sources}
        return {name: offsets for name, offsets in read.items() if any(offsets.values())}

    # -- sources, and what is gone

    def sources(self) -> Iterator[Change]:
        """Yield the changes of the sources, one for each."""
        if "sources" not in self.stored:
            return
        for name, now in self.now["sources"].items():
            was, this = self.stored["sources"].get(name), Change(part="source", name=name)
            if was == now:
                yield this
            elif was is None:
                yield this.passes("new", f'the source "{name}" is new', "It is read from its start.")
            else:
                yield self._source(this, was, now)

    def _source(self, this: Change, was: Mapping[str, Any], now: Mapping[str, Any]) -> Change:
        name = this.name
        since = self._since(node for node in self.plan.sources() if self.plan.name(node) == name)
        elsewhere = bool(since) and any(was[field] != now[field] for field in ("topic", "connector"))
        what, differs = f'the source "{name}" is declared in another way', difference(was, now)
        if elsewhere and all(str(each["connector"]).startswith(KIND) for each in (was, now)):
            what = f'the bounded table "{name}" has other rows than before'
            detail = "What the steps below keep was computed with those that it had."
            hint = "Undo the change, or compute the app anew: headrace reset FILE."
            return replace(this.refused("changed", what, detail, hint=hint), since=since)
        if elsewhere:
            detail = f"{differs} Its offsets are those of the source that it was."
            hint = "Undo the change, or give the source another name with .named(…)."
            return replace(this.refused("changed", what, detail, hint=hint), since=since)
        passes = f"The rows from {shown_offsets(since)} on are read in the new way." if since else ""
        return this.passes("changed", what, f"{differs} {passes}".strip(), since=since)

    def gone(self) -> Iterator[Change]:
        """Yield the steps and sinks that were in the app until now."""
        for step in self.stored["steps"]:
            if step not in self.now["steps"] and step in self.last.watermarks:
                yield Change(part="step", name=step).passes("gone", f'the step "{step}" is gone', _STATE_STAYS)
        for full, sink in self.stored.get("sinks", {}).items():
            if full not in self.now["sinks"] and "left after" not in sink:
                part, name = place(full)
                what = f'the {part} "{name}" is gone'
                yield Change(part=part, name=name).passes("gone", what, "Its rows stay as they are.")


_FILLED = {
    "all": "It is filled with all rows that {} keeps.",
    "open windows": "It is filled with the open windows of {}, and complete from these on: closed ones are gone.",
}
_REFILLED = "It was reset, and is computed again from what its inputs still have."
_STATE_STAYS = "Its state stays in the storage, and is not used."


def _mixed(this: Change, was_is: str) -> Change:
    step = this.part == "step"
    reset = f", or compute the step again: headrace reset FILE --step {this.name}" if step else ""
    rename = "" if step else f", or give the {this.part} another name"
    return this.refused(
        "changed",
        f'the {this.part} "{this.name}" has rows of another input than it would be fed with',
        f"{was_is} Its rows may be withdrawn, and would be withdrawn in the new way where they were inserted in the "
        "old one.",
        hint=f"Undo the change{rename}{reset}.",
    )


def _of_other_rows(this: Change, was_is: str, before: Chain, after: Chain) -> Change:
    """Return that conditions which are met above a step although they are written below it are not what they were."""
    moved = " and ".join(dict.fromkeys([*before.missed, *after.missed]))
    name = "" if before.missed else "; or give the `where` a name, .named(…), with which it stays below the step"
    return this.refused(
        "changed",
        f'the state of the step "{this.name}" has other rows than the program needs',
        f"{was_is} A `where` below a step is met above it where that gives the same rows (here: {moved}), and the "
        "state has what was let pass.",
        hint=f"Undo the change{name}; or compute the step again: headrace reset FILE --step {this.name}",
    )


def _rows_twice(this: Change, lost: str, fresh: str) -> Change:
    return this.refused(
        "changed",
        f'the {this.part} "{this.name}" has the rows of source "{lost}" and would get them again from "{fresh}"',
        "Both read the same topic, and offsets are kept by the name of the source: a new name begins at the start.",
        hint=f'Give the source its old name: .named("{lost}").',
    )
