"""Errors of a broker that will not pass by themselves: who may, where it is, what fits."""

from __future__ import annotations

from headrace.base.blame import OutsideError, PlanError


class LoginRefused(OutsideError):
    """A broker does not accept the login, or speaks another security protocol."""

    condition = "LOGIN_REFUSED"


class TopicMissing(OutsideError):
    """A broker has no topic of this name, or no longer."""

    condition = "TOPIC_MISSING"


class TopicRefused(PlanError):
    """A broker does not create a topic as it is asked for: replication, partitions, settings, a policy."""

    condition = "TOPIC_REFUSED"


class RecordTooLarge(OutsideError):
    """A record is larger than the topic takes."""

    condition = "RECORD_TOO_LARGE"


class BrokerFailed(OutsideError):
    """A broker refused a request, for a reason that does not pass by itself."""

    condition = "BROKER_FAILED"


class QueueMissing(OutsideError):
    """A broker has no queue, exchange or subscription of this name, or no longer."""

    condition = "QUEUE_MISSING"

    @classmethod
    def named(cls, kind: str, name: str, *, where: str, create: str) -> QueueMissing:
        """Return the error of one that is missing; `create` says how to make it."""
        return cls(f'there is no {kind} "{name}" at {where}', hint=create)


class MessageTooLarge(OutsideError):
    """A message is larger than the broker takes."""

    condition = "MESSAGE_TOO_LARGE"

    def __init__(self, where: str, *, id: str, size: int, most: str) -> None:  # noqa: A002 -- as messages have it
        super().__init__(
            f"a message for {where} has {size:,} bytes, and it takes {most}",
            detail=f"Its id is {id}. The rows of its epoch are staged; messages before it may have been sent.",
            hint="Let the broker take larger ones, or send fewer columns; then start the app again.",
        )


class PositionLost(OutsideError):
    """A broker no longer has the stream that a feed has read: it was deleted and created again, or goes back."""

    condition = "POSITION_LOST"

    def __init__(self, what: str, *, read: str, now: str) -> None:
        super().__init__(
            f"{what} is not what the feed has read up to {read}: {now}",
            detail="Its messages have numbers that were read already, so they would be taken for read.",
            hint="Fill another topic; or remove the topic's file from the folder landings of the log: it begins anew.",
        )
