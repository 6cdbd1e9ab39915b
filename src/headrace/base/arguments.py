"""Arguments of public calls that are of the wrong type: refused at the call, by name, and not deep inside."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.base.errors import InvalidArgument
from headrace.base.names import is_unicode

LONGEST_NAME, LONGEST_PATH = 255, 4_000
"""How many bytes the name of a file or folder may have, and a whole path: what file systems and Linux take."""


def a_path(value: Any, argument: str) -> Path:
    """Return a path: a text that is not empty, or an `os.PathLike` of text.

    Raises:
        InvalidArgument: it is none, or has a name that is too long for a file system.

    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text or not is_unicode(text):
        raise InvalidArgument(f"{argument}={value!r} is no path", hint=f'Give a text or a Path: {argument}="folder".')
    path = Path(text)
    for name, most in (*((part, LONGEST_NAME) for part in path.parts), (text, LONGEST_PATH)):
        size = len(name.encode())
        if size > most:
            what = f"{argument}={name[:40] + '…'!r} is {size} bytes long"
            raise InvalidArgument(what, hint=f"Give a shorter one: at most {most} bytes.")
    return path


def a_text(value: Any, argument: str) -> str:
    """Return a text that can be written in UTF-8; it may be empty.

    Raises:
        InvalidArgument: it is none.

    """
    if isinstance(value, str) and "\0" not in value and is_unicode(value):
        return value
    raise InvalidArgument(f"{argument}={value!r} is no text", hint=f'For example {argument}="text".')


def a_whole_number(value: Any, argument: str, *, least: int = 0) -> int:
    """Return a whole number of at least `least`.

    Raises:
        InvalidArgument: it is none.

    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise InvalidArgument(f"{argument}={value!r} is not possible", hint=f"Give a whole number of at least {least}.")


def a_number(value: Any, argument: str) -> float:
    """Return a finite number.

    Raises:
        InvalidArgument: it is none.

    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise InvalidArgument(f"{argument}={value!r} is not possible", hint="Give a number.")


def name_list(value: Any, argument: str) -> tuple[str, ...]:
    """Return names as a tuple: of one text, or of a sequence of texts.

    Raises:
        InvalidArgument: it is neither.

    """
    listed = (value,) if isinstance(value, str) else value
    if isinstance(listed, Sequence) and all(isinstance(each, str) and is_unicode(each) for each in listed):
        return tuple(listed)
    raise InvalidArgument(
        f"{argument}={value!r} names no columns", hint=f'Give a name, or several: {argument}=("first", "second").'
    )


def a_mapping(value: Any, argument: str) -> dict[str, Any]:
    """Return a mapping of names as a dict.

    Raises:
        InvalidArgument: it is none, or a key of it is no text.

    """
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise InvalidArgument(f"{argument}={value!r} is no mapping of names", hint=f'For example {argument}={{"name": …}}.')


def one_of(value: Any, argument: str, known: Sequence[str]) -> str:
    """Return a word that is one of those that are known.

    Raises:
        InvalidArgument: it is another one.

    """
    if isinstance(value, str) and value in known:
        return value
    raise InvalidArgument(
        f"{argument}={value!r} is not known", hint="Say " + " or ".join(f'"{word}"' for word in known) + "."
    )
