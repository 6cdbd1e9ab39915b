"""Every text is read within bounds: what nests deeply has room, up to a limit, and only our errors leave."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, InternalError, InvalidExpression

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp

MAX_DEPTH = 300
"""So many operations may be inside each other; DuckDB's own limit is 1 000 levels of the SQL that they become."""
MAX_BRACKETS = 60
MOST_FRAMES = 12_000
LONGEST = 120
_BRACKET = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|(?P<open>[(\[{]|\b(?:array|map|struct)\s*<)|(?P<close>[)\]}>])""",
    re.IGNORECASE | re.DOTALL,
)


class TooManySteps(Exception):
    """The parser tries ever more ways to read a text."""


@contextmanager
def guarded(where: str, text: object, kind: type[HeadraceError] = InvalidExpression) -> Iterator[None]:
    """Give the readers and compilers of a text room to recurse, and turn what is no error of ours into one.

    Args:
        where: begins the error, such as `step "a": `.
        text: what is read.
        kind: the error of a text that nests too deeply.

    Raises:
        HeadraceError: of this kind for texts that nest too deeply; an `InternalError` where we fail at the text.

    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, MOST_FRAMES))
    try:
        yield
    except HeadraceError:
        raise
    except (RecursionError, TooManySteps):
        raise too_deep(where, text, kind) from None
    except Exception as error:
        raise InternalError(
            f"{where}reading {_short(text)} ended in {type(error).__name__}: {error}",
            hint="Please report this text. Writing it in another way may help.",
        ) from error
    finally:
        sys.setrecursionlimit(before)


def too_deep(where: str, text: object, kind: type[HeadraceError] = InvalidExpression) -> HeadraceError:
    """Return the error for a text that nests too deeply."""
    return kind(
        f"{where}cannot read {_short(text)}: it nests too deeply",
        detail=f"At most {MAX_DEPTH} operations may be inside each other; a chain like a + b + c … is one, too.",
        hint="Compute a part of it in a step before: .with_columns(part=…).",
    )


def brackets_too_deep(text: str) -> bool:
    """Whether more brackets are open at once than are allowed: the parser tries each of them in several ways."""
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += (found.lastgroup == "open") - (found.lastgroup == "close")
        if depth > MAX_BRACKETS:
            return True
    return False


def nests_too_deeply(tree: exp.Expression) -> bool:
    """Whether a tree has more levels than are allowed."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return False
    return True


def _short(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
