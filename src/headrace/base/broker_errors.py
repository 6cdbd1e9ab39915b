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
