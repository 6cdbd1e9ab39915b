"""The body of a request as messages: one, or the elements of a batch, with ids that a repetition has too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.connect.json_spans import elements
from headrace.connect.messages.reading import Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ID_HEADERS = ("Idempotency-Key", "webhook-id", "X-GitHub-Delivery", "headrace-id")
"""The headers that say which request it is, the same when it is sent again; the first one that is there counts."""
_BATCHES = ("application/cloudevents-batch+json",)
_LINES = ("application/x-ndjson", "application/jsonl", "application/json-lines")


class BadBody(Exception):
    """A body is not what its content type says."""


def messages_of(body: bytes, headers: Mapping[str, str], about: Mapping[str, object]) -> Sequence[Message]:
    """Return the messages of a request.

    A JSON array is a batch, an element a message; so are lines of NDJSON. An element has the id of the request and its
    number. A CloudEvent has the id of its source and id instead.

    Raises:
        BadBody: a batch cannot be taken apart.

    """
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    request = next((headers[name] for name in ID_HEADERS if name in headers), None)
    if "ce-id" in headers:
        found = {name.lower().replace("ce-", "ce_", 1) if name[:3].lower() == "ce-" else name.lower(): value
                 for name, value in headers.items()}  # fmt: skip
        return [Message(body, _event_id(headers.get("ce-source"), headers["ce-id"]), headers=found, about=about)]
    if kind in _LINES:
        parts = [line for line in body.split(b"\n") if line.strip()]
    elif kind in _BATCHES or (kind.endswith("json") and body.lstrip()[:1] == b"["):
        parts = _elements(body)
    else:
        identity = _of_event(body) if kind.startswith("application/cloudevents") else None
        return [Message(body, identity or request, headers=headers, about=about)]
    if kind in _BATCHES:
        plain = {"content-type": "application/cloudevents+json"}
        return [Message(part, _of_event(part) or request, headers=plain, about=about) for part in parts]
    ids = [None if request is None else f"{request}/{at}" for at in range(len(parts))]
    return [Message(part, each, headers=headers, about=about) for part, each in zip(parts, ids, strict=True)]


def _elements(body: bytes) -> list[bytes]:
    """Return the elements of a JSON array, each as it is written."""
    try:
        return [each.encode() for each in elements(body.decode())]
    except (ValueError, RecursionError) as error:
        raise BadBody(f"the batch is no JSON array: {error}") from None


def _of_event(event: bytes) -> str | None:
    try:
        found: Any = json.loads(event)
        return _event_id(found["source"], found["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # the format says what is wrong with it


def _event_id(source: object, identity: object) -> str:
    return f"{source} {identity}"
