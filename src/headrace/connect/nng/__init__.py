"""nng: sockets that pull, subscribe and reply, as sources; and that push and publish, as sinks.

Needs the extra: `pip install headrace[nng]`. See docs/direct.md.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.nng.receiving import pull, reply, subscribe
    from headrace.connect.nng.sending import publish, push

__all__ = ["publish", "pull", "push", "reply", "subscribe"]
_FILES = dict.fromkeys(("pull", "reply", "subscribe"), "receiving") | dict.fromkeys(("publish", "push"), "sending")


def __getattr__(name: str) -> Any:
    """Import what needs the library when it is first used."""
    return of_extra(__name__, _FILES, name, what="a socket of nng")
