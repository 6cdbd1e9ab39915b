"""The grammar of JSON (RFC 8259, and Python's NaN and Infinity) over bytes, in compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.connect.compiled import inlined

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

ESCAPES, WIDE = 1, 2
"""What a string has: escapes, bytes that are not ASCII."""


@inlined
def after_blanks(data: Array, at: int, end: int) -> int:
    """Return the next place that is not blank."""
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@inlined
def _hex(data: Array, at: int, end: int) -> int:
    """Return the number of four hexadecimal digits, or -1."""
    if at + 4 > end:
        return -1
    found = 0
    for place in range(at, at + 4):
        byte = data[place]
        if 48 <= byte <= 57:
            found = found * 16 + byte - 48
        elif 97 <= byte <= 102:
            found = found * 16 + byte - 87
        elif 65 <= byte <= 70:
            found = found * 16 + byte - 55
        else:
            return -1
    return found


@inlined
def _escape_length(data: Array, at: int, end: int) -> int:
    """Return how long the escape at a backslash is; 0: it is none. Half a character of Unicode is none."""
    if at + 1 >= end:
        return 0
    byte = data[at + 1]
    if byte in (34, 92, 47, 98, 102, 110, 114, 116):
        return 2
    if byte != 117:
        return 0
    code = _hex(data, at + 2, end)
    if code < 0 or 0xDC00 <= code <= 0xDFFF:
        return 0
    if not 0xD800 <= code <= 0xDBFF:
        return 6
    low = -1
    if at + 7 < end and data[at + 6] == 92 and data[at + 7] == 117:
        low = _hex(data, at + 8, end)
    return 12 if 0xDC00 <= low <= 0xDFFF else 0


@inlined
def string_end(data: Array, at: int, end: int) -> Any:
    """Return where the closing quote of a string is, or -1, and what the string has; `at` is after the opening one."""
    odd = 0
    while at < end:
        byte = data[at]
        if byte == 34:
            return at, odd
        if byte == 92:
            length = _escape_length(data, at, end)
            if length == 0:
                return -1, odd
            odd |= ESCAPES
            at += length
        elif byte < 32:
            return -1, odd
        else:
            odd |= (byte >> 7) << 1
            at += 1
    return -1, odd


@inlined
def key_end(data: Array, at: int, end: int) -> Any:
    """Return where the closing quote of a name is, or -1, and what the name has; `at` is at the opening one."""
    if at >= end or data[at] != 34:
        return -1, 0
    return string_end(data, at + 1, end)


@inlined
def number(data: Array, at: int, end: int) -> Any:
    """Read a number.

    Returns the place after it or -1, its digits without the point, the exponent of ten, whether the digits are at most
    18 (else they are not all there), and whether there is a minus.
    """
    digits, exponent, count, negative = 0, 0, 0, False
    if at < end and data[at] == 45:
        negative = True
        at += 1
    first = at
    while at < end and 48 <= data[at] <= 57:
        if count < 18:
            digits = digits * 10 + (data[at] - 48)
        count += digits > 0
        at += 1
    if at == first or (data[first] == 48 and at > first + 1):
        return -1, 0, 0, False, False
    if at < end and data[at] == 46:
        at += 1
        point = at
        while at < end and 48 <= data[at] <= 57:
            if count < 18:
                digits = digits * 10 + (data[at] - 48)
                exponent -= 1
            count += digits > 0
            at += 1
        if at == point:
            return -1, 0, 0, False, False
    if at < end and (data[at] | 32) == 101:
        at += 1
        minus = False
        if at < end and (data[at] == 43 or data[at] == 45):
            minus = data[at] == 45
            at += 1
        power, begun = 0, at
        while at < end and 48 <= data[at] <= 57:
            power = min(power * 10 + (data[at] - 48), 100_000)
            at += 1
        if at == begun:
            return -1, 0, 0, False, False
        exponent += -power if minus else power
    return at, digits, exponent, count <= 18, negative


@inlined
def _after_word(data: Array, at: int, end: int) -> int:
    """Return the place after true, false, null, NaN or Infinity, or -1."""
    for word in (b"true", b"false", b"null", b"NaN", b"Infinity", b"-Infinity"):
        if at + len(word) <= end:
            same = 0
            while same < len(word) and data[at + same] == word[same]:
                same += 1
            if same == len(word):
                return at + same
    return -1


@inlined
def _after_scalar(data: Array, at: int, end: int) -> Any:
    """Return the place after a value that is no list or object, or -1, and what it has."""
    byte = data[at]
    if byte == 34:
        close, odd = string_end(data, at + 1, end)
        return (close + 1 if close >= 0 else -1), odd
    after = -1
    if byte == 45 or 48 <= byte <= 57:
        after = number(data, at, end)[0]
    return (after if after >= 0 else _after_word(data, at, end)), 0


@inlined
def after_name(data: Array, at: int, end: int) -> Any:
    """Return the place of the value after a name, or -1, and what the name has."""
    close, odd = key_end(data, at, end)
    if close < 0:
        return -1, odd
    at = after_blanks(data, close + 1, end)
    if at >= end or data[at] != 58:
        return -1, odd
    return after_blanks(data, at + 1, end), odd


@inlined
def after_value(data: Array, at: int, end: int, stack: Array) -> Any:
    """Return the place after a value, or -1, and what its strings have; `stack` bounds how deep it may be."""
    depth, odd = 0, 0
    while True:
        if at >= end:
            return -1, odd
        byte = data[at]
        if byte == 123 or byte == 91:
            at = after_blanks(data, at + 1, end)
            if at >= end:
                return -1, odd
            if data[at] != byte + 2:  # } is two after {, and ] two after [
                if depth == len(stack):
                    return -1, odd
                stack[depth] = byte
                depth += 1
                if byte == 123:
                    at, more = after_name(data, at, end)
                    odd |= more
                    if at < 0:
                        return -1, odd
                continue
            at += 1
        else:
            at, more = _after_scalar(data, at, end)
            odd |= more
            if at < 0:
                return -1, odd
        while depth > 0:
            at = after_blanks(data, at, end)
            if at >= end:
                return -1, odd
            if data[at] == 44:
                at = after_blanks(data, at + 1, end)
                if stack[depth - 1] == 123:
                    at, more = after_name(data, at, end)
                    odd |= more
                    if at < 0:
                        return -1, odd
                break
            if data[at] != stack[depth - 1] + 2:
                return -1, odd
            at += 1
            depth -= 1
        if depth == 0:
            return at, odd


@inlined
def is_utf8(data: Array, at: int, end: int) -> bool:
    """Whether bytes are UTF-8: no half characters, nothing written longer than needed (RFC 3629)."""
    while at < end:
        first = data[at]
        if first < 0x80:
            at += 1
            continue
        more = 1 if 0xC2 <= first <= 0xDF else 2 if 0xE0 <= first <= 0xEF else 3 if 0xF0 <= first <= 0xF4 else 0
        if more == 0 or at + more >= end:
            return False
        second = data[at + 1]
        low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if not low <= second <= high:
            return False
        for place in range(at + 2, at + more + 1):
            if data[place] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@inlined
def unescaped(data: Array, span: Any, out: Array, to: int) -> int:
    """Write the content of a string without its escapes, as UTF-8; return the place after it."""
    at, end = span
    while at < end:
        byte = data[at]
        if byte != 92:
            out[to] = byte
            at, to = at + 1, to + 1
            continue
        letter = data[at + 1]
        if letter != 117:
            out[to] = (
                8 if letter == 98 else 12 if letter == 102 else 10 if letter == 110 else
                13 if letter == 114 else 9 if letter == 116 else letter
            )  # fmt: skip
            at, to = at + 2, to + 1
            continue
        code = _hex(data, at + 2, end)
        at += 6
        if 0xD800 <= code <= 0xDBFF:
            code = 0x10000 + ((code - 0xD800) << 10) + _hex(data, at + 2, end) - 0xDC00
            at += 6
        if code < 0x80:
            out[to] = code
            to += 1
            continue
        length = 2 if code < 0x800 else 3 if code < 0x10000 else 4
        for place in range(length - 1, 0, -1):
            out[to + place] = 0x80 | (code & 0x3F)
            code >>= 6
        out[to] = code | (0xC0 if length == 2 else 0xE0 if length == 3 else 0xF0)
        to += length
    return to
