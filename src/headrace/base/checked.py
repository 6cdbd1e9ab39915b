"""JSON with a checksum: every JSON file of ours is read and written here.

The text stays one JSON object. Its first member is `checksum`: the CRC-32 of everything after that member. Files that
were written without it are read as they are.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from headrace.base.crc import crc32
from headrace.base.errors import DamagedFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY = "checksum"
_HEAD, _DIGITS, _BEHIND = '{"checksum": "', 8, '"'


def members(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass: the `default` of `json.dumps`, which copies nothing as `asdict` does."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def to_text(data: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Return an object as JSON text with a checksum; it must not have the key `checksum`, and may hold dataclasses."""
    rest = json.dumps(data, indent=indent, default=members)[1:]
    rest = f",{rest}" if data else rest
    return f"{_HEAD}{_checksum(rest)}{_BEHIND}{rest}"


def from_text(raw: str | bytes, path: Path | str, *, hint: str = "") -> dict[str, Any]:
    """Return the object that `to_text` wrote, without its checksum.

    Args:
        raw: the content of the file; text without a checksum is accepted, as older versions wrote it.
        path: the file, for the error.
        hint: what mends a damaged file, for the error.

    Raises:
        DamagedFile: it is no JSON object, or does not match its checksum.

    """
    text = _decoded(raw, path, hint)
    start, end = len(_HEAD), len(_HEAD) + _DIGITS
    marked = text.startswith(_HEAD) and text[end : end + 1] == _BEHIND
    if marked != (_checksum(text[end + 1 :]) == text[start:end]):  # also where the mark itself is damaged
        raise DamagedFile(str(path), "its content does not match its checksum", hint=hint)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(str(path), str(error), hint=hint) from error
    if not isinstance(data, dict) or (KEY in data) != marked:
        raise DamagedFile(str(path), "it is not as it was written", hint=hint)
    data.pop(KEY, None)
    return data


def _decoded(raw: str | bytes, path: Path | str, hint: str) -> str:
    try:
        return raw if isinstance(raw, str) else raw.decode()
    except UnicodeDecodeError as error:
        raise DamagedFile(str(path), str(error), hint=hint) from error


def _checksum(text: str) -> str:
    return f"{crc32(text.encode()):08x}"
