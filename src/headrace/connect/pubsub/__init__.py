"""Google Cloud Pub/Sub: subscriptions come in by a stream of leased messages, rows go out with ordering keys.

Needs the extra: `pip install headrace[pubsub]`. Nothing outside this folder knows Google's client, which is imported
when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.pubsub.publishing import topic
    from headrace.connect.pubsub.pulling import subscription

__all__ = ["subscription", "topic"]
_FILES = {"subscription": "pulling", "topic": "publishing"}


def __getattr__(name: str) -> Any:
    """Import what needs Google's client when it is first used."""
    return of_extra(__name__, _FILES, name, what="Pub/Sub")
