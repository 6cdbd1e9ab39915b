"""Webhooks: requests of others that are answered when their records are durable, and rows that are posted.

Needs the extra: `pip install headrace[web]`. See docs/direct.md.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.webhook.posting import post
    from headrace.connect.webhook.receiving import endpoint

__all__ = ["endpoint", "post"]
_FILES = {"endpoint": "receiving", "post": "posting"}


def __getattr__(name: str) -> Any:
    """Import what needs aiohttp when it is first used."""
    return of_extra(__name__, _FILES, name, what="a webhook", extra="web")
