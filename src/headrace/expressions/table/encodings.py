"""Encodings: bytes to text and back, URLs, checksums."""

from __future__ import annotations

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast, raising
from headrace.expressions.coercion import comparable, unify
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

_POLYNOMIAL = 0xEDB88320


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        rest = byte
        for _ in range(8):
            rest = rest >> 1 ^ (_POLYNOMIAL if rest & 1 else 0)
        table.append(rest)
    return table


_DIGIT = "(strpos('0123456789ABCDEF', {}) - 1)"
_BYTE = f"({_DIGIT.format('left(__b, 1)')} * 16 + {_DIGIT.format('right(__b, 1)')})"
_CRC_TABLE = f"[{', '.join(map(str, _crc_table()))}]"
_CRC_BYTES = f"list_transform(regexp_extract_all(hex($1), '..'), lambda __b: CAST({_BYTE} AS BIGINT))"
_CRC_STEP = f"xor(__c >> 8, {_CRC_TABLE}[CAST(xor(__c & 255, __x) + 1 AS INTEGER)])"
_CRC32 = f"xor(list_reduce({_CRC_BYTES}, lambda __c, __x: {_CRC_STEP}, 4294967295), 4294967295)"

_DIGIT_64 = "[A-Za-z0-9+/]"
_CLEAN = "regexp_replace($1, '[^A-Za-z0-9+/=]', '', 'g')"
_BAD_BASE64 = raising("CONVERSION_INVALID_INPUT", "this text is not base 64: ", "$1")
_UNBASE64 = (
    f"(CASE WHEN regexp_full_match({_CLEAN}, '(?:{_DIGIT_64}{{4}})*(?:{_DIGIT_64}{{2}}(?:==)?|{_DIGIT_64}{{3}}=?)?')"
    f" THEN from_base64(rpad(rtrim({_CLEAN}, '='), CAST((length(rtrim({_CLEAN}, '=')) + 3) // 4 * 4 AS INTEGER), '='))"
    f" WHEN $1 IS NOT NULL THEN {_BAD_BASE64} END)"
)
_URL_ENCODE = "replace(replace(replace(url_encode($1), '%20', '+'), '%2A', '*'), '~', '%7E')"
_BAD_URL = raising("CANNOT_DECODE_URL", "this text is no encoded URL: ", "$1")
_GOOD_URL = "regexp_full_match($1, '(?s)(?:[^%]|%[0-9a-fA-F]{2})*')"
_URL_DECODE = f"(CASE WHEN {_GOOD_URL} THEN url_decode(replace($1, '+', ' ')) WHEN $1 IS NOT NULL THEN {_BAD_URL} END)"
_TRY_URL_DECODE = f"(CASE WHEN {_GOOD_URL} THEN url_decode(replace($1, '+', ' ')) END)"
_URL_NOTE = "bytes that are no UTF-8, and `%+1`, raise"


def _charset(value: Value) -> None:
    if not isinstance(value.constant, str) or value.constant.upper() != "UTF-8":
        raise Mismatch("only the constant 'UTF-8' is supported as a character set")


def _encode(values: list[Value]) -> Value:
    _charset(values[1])
    return Value("", f"encode({values[0].sql})", k.BINARY, raises=values[0].raises)


def _decode(values: list[Value]) -> Value:
    """Return text from bytes; with three arguments or more, the choice of Oracle's `decode`."""
    if len(values) == 2:  # noqa: PLR2004
        _charset(values[1])
        raw = cast(values[0], k.BINARY)
        return Value("", f"decode({raw.sql})", k.STRING, raises=True)
    subject, pairs = values[0], values[1:]
    results = unify([*pairs[1::2], *(pairs[-1:] if len(pairs) % 2 else [])], what="decode")
    branches, raises = [], False
    for given, result in zip(pairs[: len(pairs) // 2 * 2 : 2], results, strict=False):
        left, right = unify([subject, given], what="decode")
        comparable(left, "decode")
        raises = raises or left.raises or right.raises
        branches.append(f"WHEN {left.sql} IS NOT DISTINCT FROM {right.sql} THEN {result.sql}")
    rest = f"ELSE {results[-1].sql} " if len(pairs) % 2 else ""
    sql = f"(CASE {' '.join(branches)} {rest}END)"
    return Value("", sql, results[0].type, raises=raises or any(value.raises for value in [*values, *results]))


def _to_binary(values: list[Value]) -> Value:
    way = values[1].constant if len(values) > 1 else "hex"
    if way == "hex":
        template, digits = "$1", "CASE WHEN strlen($1) % 2 = 1 THEN '0' || $1 ELSE $1 END"
        fail = raising("CONVERSION_INVALID_INPUT", "this text is not hexadecimal: ", "$1")
        template = (
            f"(CASE WHEN regexp_full_match($1, '[0-9a-fA-F]*') THEN unhex({digits})"
            f" WHEN $1 IS NOT NULL THEN {fail} END)"
        )
        return Value("", template.replace("$1", values[0].sql), k.BINARY, raises=True)
    if isinstance(way, str) and way.lower() in ("utf-8", "utf8"):
        return Value("", f"encode({values[0].sql})", k.BINARY, raises=values[0].raises)
    raise Mismatch("to_binary knows the constant formats 'hex' and 'utf-8'", hint="For base 64 write unbase64(x).")


ENTRIES: tuple[Function, ...] = (
    entry(
        "crc32",
        "binary",
        "bigint",
        _CRC32,
        "crc32(s)",
        "crc32(bin)",
        notes="computed byte by byte: slow for long texts",
    ),
    entry(
        "unbase64", "string", "binary", _UNBASE64, "unbase64(base64(s))", "unbase64(s)", "unbase64('YQ')", raises=True
    ),
    built("encode", "string, string", _encode, "encode(s, 'utf-8')", notes="'UTF-8' only"),
    built(
        "decode",
        "any, any, [any...]",
        _decode,
        "decode(encode(s, 'UTF-8'), 'UTF-8')",
        "decode(bin, 'utf-8')",
        "decode(i, 1, 'one', 0, 'none', 'many')",
        "decode(s, null, 'null', 'a', t)",
        "decode(i, j, l, m)",
        order="all",
        notes="'UTF-8' only; also decode(x, a, b, …, rest): the choice whose key equals x",
    ),
    built("to_binary", "string, [string]", _to_binary, "to_binary(hex(s))", "to_binary(s, 'utf-8')", "to_binary(s)"),
    entry("url_encode", "string", "string", _URL_ENCODE, "url_encode(s)", "url_encode('é~!*()+ &=')"),
    entry(
        "url_decode",
        "string",
        "string",
        _URL_DECODE,
        "url_decode(url_encode(s))",
        "url_decode(s)",
        "url_decode('a%20b+c%C3%A9')",
        raises=True,
        notes=_URL_NOTE,
    ),
    entry(
        "try_url_decode",
        "string",
        "string",
        _TRY_URL_DECODE,
        "try_url_decode(s)",
        "try_url_decode('%zz')",
        notes=_URL_NOTE,
    ),
)
