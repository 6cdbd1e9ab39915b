"""Hashes and encodings."""

from __future__ import annotations

from headrace.expressions import kinds as k
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value


def _sha2(values: list[Value]) -> Value:
    if values[1].constant not in (0, 256):
        raise Mismatch("sha2 is supported with 256 bits only", hint="Write sha2(x, 256).")
    return Value("", f"sha256({values[0].sql})", k.STRING, raises=values[0].raises)


def _hex(values: list[Value]) -> Value:
    value = values[0]
    if k.is_integral(value.type):
        return Value("", f"printf('%X', CAST({value.sql} AS BIGINT))", k.STRING, raises=value.raises)
    return Value("", f"hex({value.sql})", k.STRING, raises=value.raises)


_UNHEX = (
    "(CASE WHEN $1 IS NULL THEN NULL WHEN regexp_full_match($1, '[0-9a-fA-F]*')"
    " THEN unhex(CASE WHEN strlen($1) % 2 = 1 THEN '0' || $1 ELSE $1 END) ELSE NULL END)"
)

ENTRIES: tuple[Function, ...] = (
    entry("md5", "binary", "string", "md5($1)", "md5(s)", "md5(bin)"),
    entry("sha sha1", "binary", "string", "sha1($1)", "sha1(s)", "sha(bin)"),
    built("sha2", "binary, whole", _sha2, "sha2(s, 256)", "sha2(bin, 0)", notes="256 bits only"),
    built("hex", "binary", _hex, "hex(s)", "hex(bin)"),
    built("hex", "integral", _hex, "hex(i)", "hex(l)"),
    entry("unhex", "string", "binary", _UNHEX, "unhex('4A4b')", "unhex(hex(s))"),
    entry("base64", "binary", "string", "base64($1)", "base64(s)", "base64(bin)"),
)
