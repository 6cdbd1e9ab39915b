"""Parts of a JSON text as they are written, so that numbers keep their digits."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = tuple[str | int, ...]
"""Names of members, and numbers of elements: negative ones count from the end."""
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")


def path_of(text: str) -> Path:
    """Return a path such as `data.items[-1].id`; the empty one is the whole.

    Raises:
        InvalidPlan: it is none.

    """
    steps, at = list[str | int](), 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or text[0] == ".":
            raise InvalidPlan(f"{text!r} is no path in JSON", hint='For example "data.items" or "items[-1].id".')
        steps.append(found[1] if found[1] is not None else int(found[2]))
        at = found.end()
    return tuple(steps)


def value_at(text: str, path: Path) -> str | None:
    """Return the text of the value at a path; None where there is none, or null.

    Raises:
        ValueError: the text is no JSON.

    """
    found: str | None = text.strip(_SPACE)
    if path and text.strip(_SPACE)[:1] not in {"{", "["}:
        json.loads(text)
    for step in path:
        first = found[:1] if found else ""
        if isinstance(step, str):
            found = members(found or "").get(step) if first == "{" else None
        else:
            listed = elements(found or "") if first == "[" else []
            found = listed[step] if -len(listed) <= step < len(listed) else None
    return None if found == "null" else found


def as_text(value: str) -> str:
    """Return the value of a JSON text if it is a string, else the text."""
    return str(json.loads(value)) if value.startswith('"') else value


def elements(text: str) -> list[str]:
    """Return the elements of a JSON array.

    Raises:
        ValueError: the text is none.

    """
    return [value for _, value in _parts(text, "[]")]


def members(text: str) -> dict[str, str]:
    """Return the members of a JSON object; of equal names the first counts, as in records.

    Raises:
        ValueError: the text is none.

    """
    found: dict[str, str] = {}
    for name, value in _parts(text, "{}"):
        found.setdefault(name, value)
    return found


def _parts(text: str, brackets: str) -> Iterator[tuple[str, str]]:
    """Yield the names (of an array: none) and values between brackets.

    Raises:
        ValueError: there are no such brackets, or no JSON in between.

    """
    at = _behind(text, _after_space(text, 0), brackets[0])
    if text[at : at + 1] != brackets[1]:
        while True:
            name = ""
            if brackets == "{}":
                name, at = _DECODER.raw_decode(text, at)
                at = _behind(text, _after_space(text, at), ":")
            _, end = _DECODER.raw_decode(text, at)
            yield str(name), text[at:end]
            at = _after_space(text, end)
            if text[at : at + 1] == brackets[1]:
                break
            at = _behind(text, at, ",")
    if _after_space(text, at + 1) != len(text):
        raise ValueError(f"something follows at character {at + 1}")


def _behind(text: str, at: int, mark: str) -> int:
    """Return the place behind a mark and space.

    Raises:
        ValueError: there is another one.

    """
    if text[at : at + 1] != mark:
        raise ValueError(f"a {mark} is missing at character {at}")
    return _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
