"""What can be wrong with a database that is captured, each with the next move."""

from __future__ import annotations

from headrace.base.blame import OutsideError, PlanError

SNAPSHOT = "headrace connect snapshot FILE TOPIC"
"""The command that reads a table's rows anew."""


class NotCapturable(PlanError):
    """The server, the role or the table is not set up for capture; the hint says what does it."""

    condition = "NOT_CAPTURABLE"


class NoPrimaryKey(PlanError):
    """A table has no key that identifies its rows."""

    condition = "NO_PRIMARY_KEY"

    def __init__(self, table: str, *, hint: str) -> None:
        super().__init__(
            f"the table {table} has no primary key",
            detail="A change names the row that it changes by the key.",
            hint=hint,
        )


class ChangesLost(OutsideError):
    """Changes that were not captured yet cannot be read any more."""

    condition = "CHANGES_LOST"

    def __init__(self, table: str, why: str) -> None:
        super().__init__(
            f"changes of {table} are lost: {why}",
            detail="The topic has all that was captured before.",
            hint=f"{SNAPSHOT} reads its rows anew: the topic then has what the table has.",
        )


class SourceSchemaChanged(OutsideError):
    """A captured table has other columns than its topic, in a way that the topic cannot follow."""

    condition = "SOURCE_SCHEMA_CHANGED"


class SourceReplaced(OutsideError):
    """The address leads to another database than the one that was captured so far."""

    condition = "SOURCE_REPLACED"


class ValueDoesNotFit(OutsideError):
    """A value of the database cannot be a value of the topic's column."""

    condition = "VALUE_DOES_NOT_FIT"

    def __init__(self, table: str, column: str, kind: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f'a value of {table}, column "{column}", is no {kind}: {why}',
            detail="Nothing after it was captured; the database keeps it.",
            hint=hint or "Correct the row, or declare the column as string, with a new topic.",
        )
