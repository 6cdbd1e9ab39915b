"""Where rows go: topics, views, connectors, objects of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from headrace.plan.nodes import Node

Form = Literal["rows", "changelog", "delta"]
Guarantee = Literal["exactly_once", "at_least_once"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sink:
    """A place that a step's rows go to; `name` is unique in the app.

    `topic` or `view`: the topic or the view of the app that it is. `target`: a connector's sink, or an object with
    `write(epoch, rows)`. `format` and `key_format`: how a topic's records are written, where that was said: a name, or
    the format itself. `is_probe`: a test driver's, which is no part of the program.
    """

    up: Node
    name: str
    topic: str | None = None
    record_key: tuple[str, ...] = ()
    view: str | None = None
    target: Any = None
    format: Any = None
    key_format: Any = None
    is_probe: bool = False

    @property
    def connector(self) -> Any:
        """The connector's sink, if it is one."""
        return self.target if hasattr(self.target, "open") else None

    def overlaps(self, other: Sink) -> bool:
        """Whether it and another one write to the same rows of a store, whatever they are called."""
        check = getattr(self.connector, "overlaps", None)
        return check is not None and bool(check(other.connector))

    @property
    def form(self) -> Form:
        """What it takes of the rows: all, one change a key, or the delta."""
        if self.connector is not None:
            form: Form = self.connector.form
            return form
        if self.topic is None:
            return "delta"
        return "changelog" if self.up.is_table else "rows"

    @property
    def before(self) -> bool:
        """Whether a changelog is to say what each row was before, because its format writes that."""
        if self.form != "changelog":
            return False
        if self.connector is not None:
            return bool(getattr(self.connector, "takes_before", False))
        return self.format == "debezium" or bool(getattr(self.format, "takes_before", False))

    @property
    def guarantee(self) -> Guarantee:
        """What a reader of it sees after crashes. An object is handed the last epoch again."""
        if self.target is None:
            return "exactly_once"
        guarantee: Guarantee = getattr(self.connector, "guarantee", "at_least_once")
        return guarantee

    @property
    def nets(self) -> bool:
        """Whether rows that were inserted and withdrawn in one epoch are to cancel out; an object sees both."""
        return self.target is None or self.connector is not None
