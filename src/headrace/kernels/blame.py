"""Whom to blame for a function of the user's: its name, file and line, and the first row that it fails on."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import duckdb
    import pyarrow as pa

NOT_COMMITTED = "The epoch was not committed: no output shows any of it, and no input is lost."
LONGEST = 200
"""How many characters of one value an error shows."""


def location(function: Callable[..., Any], error: BaseException | None = None) -> str:
    """Return the function's name with its file and the line: where it raised, or where it starts."""
    code = _code(function)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    if code is None:
        return f"the function {name}"
    line = code.co_firstlineno
    for frame in traceback.extract_tb(error.__traceback__) if error else []:
        if frame.filename == code.co_filename:
            line = frame.lineno or line
    return f"the function {name} ({code.co_filename}:{line})"


def _code(function: Callable[..., Any]) -> Any:
    """Return the code of a function, of a method, of what a partial wraps, or of an object that can be called."""
    while hasattr(function, "func"):
        function = function.func
    return getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)


def message(error: BaseException) -> str:
    """Return an exception's class and text in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_failing(works: Callable[[int, int], bool], count: int) -> int | None:
    """Return the first of `count` rows that fails by itself, by halving; None if none does.

    `works(start, length)` says whether a part of the batch goes through.
    """
    start, length = 0, count
    while length > 1:
        half = length // 2
        if works(start, half):
            start, length = start + half, length - half
        else:
            length = half
    return None if count == 0 or works(start, 1) else start


def all_failing(works: Callable[[int, int], bool], count: int) -> list[int]:
    """Return all of `count` rows that fail by themselves, by halving what fails; `works` as in `first_failing`."""
    found: list[int] = []
    parts = [] if count == 0 or works(0, count) else [(0, count)]
    while parts:
        start, length = parts.pop()
        if length == 1:
            found.append(start)
            continue
        half = length // 2
        parts += [part for part in ((start, half), (start + half, length - half)) if not works(*part)]
    return sorted(found)


def duckdb_text(error: duckdb.Error) -> str:
    """Return DuckDB's message, in one line and without its class."""
    return str(error).strip().splitlines()[0].removeprefix("Invalid Input Error: ")


def row_text(arguments: Sequence[pa.Array | pa.ChunkedArray], row: int) -> str:
    """Return one row of arguments for people."""
    return ", ".join(_short(argument[row].as_py()) for argument in arguments)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
