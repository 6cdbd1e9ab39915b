"""What has changed between a program and the one that its storage was written by, and what that means for the rows.

A pure value: `headrace diff` prints it, and a start refuses what would mix results, from the same comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.errors import PlanChanged

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["unchanged", "new", "changed", "moved", "returned", "gone"]
Outcome = Literal["kept", "passes", "rebuilt", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What has happened to a step, a sink or a source of a program.

    `outcome`: "kept", nothing is different for its rows; "passes", it goes on, and `detail` says which rows are
    computed in which way; "rebuilt", it is computed anew from what the steps above keep, before the first epoch;
    "refused", the program does not start. `since`: the offsets from which on the new meaning holds, by source and
    partition. `hint`: what can be done safely about a refusal.
    """

    part: str
    name: str
    kind: Kind = "unchanged"
    outcome: Outcome = "kept"
    what: str = ""
    detail: str = ""
    hint: str = ""
    since: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def passes(
        self, kind: Kind, what: str, detail: str = "", *, since: Mapping[str, Mapping[str, int]] | None = None
    ) -> Change:
        """Return the change of the same part with which it goes on."""
        return replace(self, kind=kind, outcome="passes", what=what, detail=detail, since=since or {})

    def refused(self, kind: Kind, what: str, detail: str = "", *, hint: str) -> Change:
        """Return the change of the same part with which the program does not start."""
        return replace(self, kind=kind, outcome="refused", what=what, detail=detail, hint=hint)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "part": self.part,
            "name": self.name,
            "kind": self.kind,
            "outcome": self.outcome,
            "what": self.what,
            "detail": self.detail,
            "hint": self.hint,
            "since": {source: dict(offsets) for source, offsets in self.since.items()},
        }

    def __str__(self) -> str:
        return f"{'refused: ' if self.outcome == 'refused' else ''}{self.what}" + (
            f". {self.detail}" if self.detail else ""
        )


@dataclass(frozen=True, kw_only=True)
class ProgramChanges:
    """The changes of a program since its storage was written, an entry for each step, sink and source.

    `since`: the last epoch of the storage, None before the first: then there is nothing to compare. `moves`: the old
    name by the new one of each step whose state moves. `later`: by step, how much later its windows close.
    `rebuilt_steps` and `rebuilt_sinks`: what is computed anew.
    """

    app: str
    since: int | None = None
    entries: tuple[Change, ...] = ()
    moves: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[str, int] = field(default_factory=dict)
    rebuilt_steps: frozenset[str] = frozenset()
    rebuilt_sinks: frozenset[str] = frozenset()

    @property
    def changed(self) -> tuple[Change, ...]:
        """The entries that are not as they were."""
        return tuple(entry for entry in self.entries if entry.kind != "unchanged")

    @property
    def refused(self) -> tuple[Change, ...]:
        """The entries for which the program does not start."""
        return tuple(entry for entry in self.entries if entry.outcome == "refused")

    def refuse(self) -> None:
        """Raise if the program must not start on this storage.

        Raises:
            PlanChanged: what changed, what it would mix, and what is safe to do.

        """
        if not self.refused:
            return
        first, *others = self.refused
        more = " ".join(f"Also: {other.what}. {other.detail}" for other in others)
        all_of_it = " headrace diff FILE shows all changes." if others else ""
        raise PlanChanged(first.what, detail=f"{first.detail} {more}".strip(), hint=f"{first.hint}{all_of_it}".strip())

    def to_json(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {
            "app": self.app,
            "since_epoch": self.since,
            "starts": not self.refused,
            "changes": [entry.to_json() for entry in self.entries],
        }

    def lines(self) -> list[str]:
        """Return a line for each change, for people; none if nothing changed."""
        return [str(entry) for entry in self.changed]
