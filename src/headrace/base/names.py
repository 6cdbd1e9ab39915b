"""The grammar of names: of steps, views and columns in SQL, and of topics."""

from __future__ import annotations

import re

from headrace.base.errors import InvalidName

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TOPIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
DEAD = re.compile(r"(\.dead){1,4}$")
MAX_LENGTH = 200  # a name becomes a folder's name, and most file systems stop at 255 bytes


def check_identifier(name: object, *, what: str) -> str:
    """Return `name` if it is `[A-Za-z_][A-Za-z0-9_]*`; `what` ("step", "view") names it in the error.

    Raises:
        InvalidName: it is not.

    """
    if isinstance(name, str) and IDENTIFIER.fullmatch(name) and len(name) <= MAX_LENGTH:
        return name
    raise InvalidName(
        f"{name!r} is not allowed as the name of {'an' if what[0] in 'aeiou' else 'a'} {what}",
        detail=f"Letters, digits and _ are allowed, up to {MAX_LENGTH} of them; the first is not a digit.",
        hint=_suggest(name),
    )


def check_topic(name: object) -> str:
    """Return `name` if it may name a topic: Kafka's letters `[A-Za-z0-9._-]`, not starting with a dot or dash.

    `.dead` at the end is not counted: every topic can have dead letters.

    Raises:
        InvalidName: it is not.

    """
    if isinstance(name, str) and TOPIC.fullmatch(name) and len(DEAD.sub("", name)) <= MAX_LENGTH:
        return name
    raise InvalidName(
        f"{name!r} is not allowed as the name of a topic",
        detail=f"Letters, digits, '.', '_' and '-' are allowed, up to {MAX_LENGTH}; the first is not '.' or '-'.",
        hint=_suggest(name),
    )


def is_unicode(text: str) -> bool:
    """Whether a text can be written in UTF-8: it has no surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def quote(name: str) -> str:
    """Return `name` as a quoted identifier of DuckDB's or SQLite's SQL; any text is a valid column name."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return `text` as a string literal of DuckDB's or SQLite's SQL."""
    return "'" + text.replace("'", "''") + "'"


def _suggest(name: object) -> str:
    suggestion = re.sub(r"\W+", "_", str(name), flags=re.ASCII).strip("_")[:MAX_LENGTH]
    return f'Try "{suggestion}".' if IDENTIFIER.fullmatch(suggestion) and suggestion != name else ""
