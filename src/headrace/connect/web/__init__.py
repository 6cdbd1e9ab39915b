"""The web as a client: answers that are asked for again and again, server-sent events, WebSocket.

Needs the extra: `pip install headrace[web]`. What others send here is in `webhook`. See docs/direct.md.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.web.polling import poll
    from headrace.connect.web.server_events import events
    from headrace.connect.web.socket_in import socket
    from headrace.connect.web.socket_out import send

__all__ = ["events", "poll", "send", "socket"]
_FILES = {"poll": "polling", "events": "server_events", "socket": "socket_in", "send": "socket_out"}


def __getattr__(name: str) -> Any:
    """Import what needs aiohttp when it is first used."""
    return of_extra(__name__, _FILES, name, what="the web")
