"""The description of a table that the log has before its rows: names and types of columns, as they were then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.connect.capture.errors import NotCapturable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, DATE, YEAR = 1, 2, 3, 4, 5, 8, 9, 10, 13
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2, DECIMAL = 15, 16, 17, 18, 19, 246
ENUM, SET, BLOB, STRING, GEOMETRY = 247, 248, 252, 254, 255
INTEGERS = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
_FIXED = INTEGERS | {FLOAT: 4, DOUBLE: 8, YEAR: 1, DATE: 3}
_NUMBERS = {*INTEGERS, FLOAT, DOUBLE, DECIMAL, YEAR}
_TEXTS = {VARCHAR, STRING, BLOB, GEOMETRY}
_META = {FLOAT: 1, DOUBLE: 1, VARCHAR: 2, BIT: 2, DECIMAL: 2, BLOB: 1, GEOMETRY: 1, STRING: 2} | dict.fromkeys(
    (TIMESTAMP2, DATETIME2, TIME2), 1
)
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_VALUES, _ENUM_VALUES = 1, 2, 3, 4, 5, 6
_ENUM_DEFAULT_CHARSET, _ENUM_COLUMN_CHARSET = 10, 11
_DIGITS = 9
_UTF8 = ("ascii", "utf8", "utf8mb3", "utf8mb4")
_CODECS = {
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "euckr": "cp949",
}
_SIMILAR = {
    "sjis": ("shift_jis", str.maketrans("＼", "\\")),  # noqa: RUF001
    "ujis": ("euc_jp", str.maketrans("＼", "\\")),  # noqa: RUF001
    "eucjpms": ("euc_jp", str.maketrans("〜‖−¢£¬¦", "～∥－￠￡￢￤")),  # noqa: RUF001
}
"""Charsets that Python has but for some letters, which are others to the server."""
LETTERS = 256
"""A charset of one byte a letter is given by its letters: Python's are not always those of the server."""
BINARY = "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedColumn:
    """A column. `shape`: bytes of a cell, or, negative, of the length before it.

    `detail`: digits before and behind a decimal's point, digits of a second, the length of a fixed text. `charset`:
    a codec of Python, or what each of 256 bytes means; empty where texts are UTF-8, `BINARY` where they are bytes.
    `values`: of an enum or a set.
    """

    name: str
    kind: int
    shape: int
    detail: tuple[int, int] = (0, 0)
    unsigned: bool = False
    charset: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table: its columns, or, if the server does not log their names, none."""

    schema: str
    name: str
    columns: tuple[MappedColumn, ...]
    unknown: str | None = None
    """A column whose type cannot be read, and so no row."""


def parse(content: bytes, charsets: Mapping[int, str]) -> TableMap:
    """Return what a description says. `charsets`: as `server.charsets` returns.

    Raises:
        NotCapturable: the server does not log names of columns.

    """
    at = 8
    schema = content[at + 1 : at + 1 + content[at]].decode()
    at += content[at] + 2
    name = content[at + 1 : at + 1 + content[at]].decode()
    at += content[at] + 2
    count, at = _length(content, at)
    kinds = content[at : at + count]
    size, at = _length(content, at + count)
    details = content[at : at + size]
    metadata = dict(_entries(content, at + size + (count + 7) // 8))
    if _NAMES not in metadata:
        raise NotCapturable(
            f"the log does not have the names of the columns of {schema}.{name}",
            hint="SET GLOBAL binlog_row_metadata = FULL; then connections begin anew.",
        )
    names = [each.decode() for each in _strings(metadata[_NAMES])]
    shapes = list(_shapes(kinds, details))
    unsigned = _unsigned([kind for kind, *_ in shapes], metadata.get(_SIGNEDNESS, b""))
    real = [kind for kind, *_ in shapes]
    codecs = _charsets(real, _TEXTS, metadata, (_DEFAULT_CHARSET, _COLUMN_CHARSET), charsets)
    codecs |= _charsets(real, {ENUM, SET}, metadata, (_ENUM_DEFAULT_CHARSET, _ENUM_COLUMN_CHARSET), charsets)
    listed = {ENUM: _lists(metadata.get(_ENUM_VALUES, b"")), SET: _lists(metadata.get(_SET_VALUES, b""))}
    columns = []
    for place, (column, (kind, shape, detail)) in enumerate(zip(names, shapes, strict=True)):
        codec = codecs.get(place, "")
        values = tuple(spelled(each, codec) for each in next(listed[kind])) if kind in listed else ()
        columns.append(
            MappedColumn(
                name=column,
                kind=kind,
                shape=shape,
                detail=detail,
                unsigned=unsigned[place],
                charset=codec if kind != GEOMETRY else BINARY,
                values=values,
            )
        )
    unknown = next((each.name for each in columns if not each.shape), None)
    return TableMap(schema, name, tuple(columns), unknown)


def _length(content: bytes, at: int) -> tuple[int, int]:
    """Return a number in the protocol's own form, and the place behind it."""
    first = content[at]
    if first < 0xFB:  # noqa: PLR2004 - of the protocol
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(content[at + 1 : at + 1 + size], "little"), at + 1 + size


def _entries(content: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(content):
        size, start = _length(content, at + 1)
        yield content[at], content[start : start + size]
        at = start + size


def _strings(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size, start = _length(content, at)
        yield content[start : start + size]
        at = start + size


def _lists(content: bytes) -> Iterator[list[bytes]]:
    at = 0
    while at < len(content):
        count, at = _length(content, at)
        found = []
        for _ in range(count):
            size, start = _length(content, at)
            found.append(content[start : start + size])
            at = start + size
        yield found


def _shapes(kinds: bytes, details: bytes) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Return of each column its kind, its shape (0: not known), and its details."""
    at = 0
    for each in kinds:
        size = _META.get(each, 0)
        detail = details[at : at + size]
        at += size
        yield _shape(each, detail)


def _shape(kind: int, detail: bytes) -> tuple[int, int, tuple[int, int]]:
    if kind in _FIXED:
        return kind, _FIXED[kind], (0, 0)
    if kind == VARCHAR:
        return kind, -1 if int.from_bytes(detail, "little") < 256 else -2, (0, 0)  # noqa: PLR2004 - what a byte holds
    if kind == BIT:
        return kind, detail[1] + (detail[0] > 0), (0, 0)
    if kind == DECIMAL:
        before, behind = detail[0] - detail[1], detail[1]
        return kind, _decimal_bytes(before) + _decimal_bytes(behind), (before, behind)
    if kind in (TIMESTAMP2, DATETIME2, TIME2):
        whole = {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}[kind]
        return kind, whole + (detail[0] + 1) // 2, (detail[0], 0)
    if kind in (BLOB, GEOMETRY):
        return kind, -detail[0], (0, 0)
    if kind != STRING:
        return kind, 0, (0, 0)
    if detail[0] in (ENUM, SET):
        return detail[0], detail[1], (0, 0)
    size = detail[1] | (((detail[0] & 0x30) ^ 0x30) << 4)
    return (STRING, -1 if size < 256 else -2, (size, 0)) if detail[0] | 0x30 == STRING else (detail[0], 0, (0, 0))  # noqa: PLR2004


def _decimal_bytes(digits: int) -> int:
    return 4 * (digits // _DIGITS) + (digits % _DIGITS + 1) // 2


def _unsigned(kinds: list[int], bits: bytes) -> list[bool]:
    numbers = iter(int(f"{byte:08b}"[place]) for byte in bits for place in range(8))
    return [kind in _NUMBERS and bool(next(numbers, 0)) for kind in kinds]


def _charsets(
    kinds: list[int],
    which: set[int],
    metadata: Mapping[int, bytes],
    entries: tuple[int, int],
    charsets: Mapping[int, str],
) -> dict[int, str]:
    """Return the codec of each column of some kinds, by its place."""
    places = [place for place, kind in enumerate(kinds) if kind in which]
    default, each = metadata.get(entries[0]), metadata.get(entries[1])
    numbers: dict[int, int] = {}
    if each is not None:
        numbers = dict(enumerate(_numbers(each)))
    elif default is not None:
        first, *pairs = _numbers(default)
        numbers = dict.fromkeys(range(len(places)), first) | dict(zip(pairs[::2], pairs[1::2], strict=True))
    return {place: codec_of(charsets.get(numbers[n], "")) for n, place in enumerate(places) if n in numbers}


def _numbers(content: bytes) -> list[int]:
    found, at = [], 0
    while at < len(content):
        number, at = _length(content, at)
        found.append(number)
    return found


def codec_of(charset: str) -> str:
    """Return the codec of a charset, as `MappedColumn.charset` has it."""
    if charset in (BINARY, ""):
        return BINARY
    if charset in _UTF8:
        return ""
    return _CODECS.get(charset, charset)


def spelled(content: bytes, codec: str, *, errors: str = "strict") -> str:
    """Return a text of a codec of `codec_of`.

    Raises:
        UnicodeDecodeError: it is none, and `errors` is not "replace".

    """
    if len(codec) == LETTERS:
        return content.decode("latin-1").translate(dict(enumerate(codec)))
    python, others = _SIMILAR.get(codec, ("utf8" if codec in ("", BINARY) else codec, {}))
    return content.decode(python, errors).translate(others)
