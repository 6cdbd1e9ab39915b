"""Upper, lower and title case as the JVM (ICU) has them: whole mappings (ß → SS) and the final sigma.

DuckDB maps letter by letter, which is the same for all but some hundred letters. ASCII text takes a short way; the
letters that are not the same are found by a pattern, and only a text that has one of them takes the long way.
`tests/expressions/test_letters.py` compares every code point of Unicode with Spark.
"""

from __future__ import annotations

from headrace.base.names import literal

_SPECIAL = (
    *range(0x80, 0x2200),
    *range(0xFB00, 0xFB18),
)  # where Unicode has letters whose upper case is not one letter
# Letters that Unicode 16 and 17 added, which DuckDB does not map yet: lower → upper
_NEW = {
    0x19B: 0xA7DC, 0x264: 0xA7CB, 0x1C8A: 0x1C89, 0xA7CD: 0xA7CC, 0xA7CF: 0xA7CE, 0xA7D3: 0xA7D2, 0xA7D5: 0xA7D4,
    0xA7DB: 0xA7DA, **{c: c - 0x20 for c in range(0x10D70, 0x10D86)}, **{c: c - 27 for c in range(0x16EBB, 0x16ED4)},
}  # fmt: skip
_SIGMA = "\u03a3"
_MARK = "\U0010ffff"  # no character: replaces a capital sigma until its position in the word is known
_STOP, _STAND_IN = "\u0295", "\U0010fffe"  # a letter that is small in RE2 and without case in Unicode 16
_NEWEST = "".join(f"\\x{{{c:x}}}\\x{{{upper:x}}}" for c, upper in _NEW.items())
_CASED = (
    r"\p{Lu}\p{Ll}\p{Lt}\x{aa}\x{ba}\x{2160}-\x{217f}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}"
    + _NEWEST
)
_IGNORED = (
    r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:\x{b7}\x{387}\x{55f}\x{5f4}\x{2018}\x{2019}\x{2024}\x{2027}\x{fe13}\x{fe52}"
    r"\x{fe55}\x{ff07}\x{ff0e}\x{ff1a}"
)


def upper(sql: str) -> str:
    """Return SQL for the text in capitals."""
    return _cased(sql, "upper", _UPPER_PATTERN, _letterwise(sql, _UPPER, "upper"))


def lower(sql: str) -> str:
    """Return SQL for the text in small letters."""
    return _cased(sql, "lower", _LOWER_PATTERN, _lowered(sql))


def title(sql: str) -> str:
    """Return SQL for the text with a capital at the start of each word, small letters elsewhere; blanks part words."""
    plain = f"list_transform(string_split(lower({sql}), ' '), lambda __w: upper(left(__w, 1)) || substring(__w, 2))"
    first = f"coalesce({_mapped(_TITLE, 'left(__w, 1)')}, upper(left(__w, 1)))"
    rest = f"substring(string_split({lower(sql)}, ' ')[__i], CASE WHEN starts_with(__w, '\u0130') THEN 3 ELSE 2 END)"
    whole = f"list_transform(string_split({sql}, ' '), lambda __w, __i: {first} || {rest})"
    return f"array_to_string(CASE WHEN strlen({sql}) = length({sql}) THEN {plain} ELSE {whole} END, ' ')"


def units(sql: str) -> str:
    """Return SQL for the length of the text in UTF-16 units, as Java counts."""
    return f"(length({sql}) + length(regexp_replace({sql}, '[^\\x{{10000}}-\\x{{10ffff}}]', '', 'g')))"


def _cased(sql: str, name: str, pattern: str, whole: str) -> str:
    return (
        f"(CASE WHEN strlen({sql}) = length({sql}) OR NOT regexp_matches({sql}, {literal(pattern)})"
        f" THEN {name}({sql}) ELSE {whole} END)"
    )


def _mapped(pairs: dict[str, str], letter: str) -> str:
    """Return SQL for what a letter becomes, null for other letters; DuckDB plans a map of so many for 3 ms."""
    capitals = f"string_split({literal(' '.join(pairs.values()))}, ' ')"
    return f"{capitals}[strpos({literal(''.join(pairs))}, nullif({letter}, ''))]"


def _pattern(letters: dict[str, str]) -> str:
    return "[" + "".join(f"\\x{{{ord(letter):x}}}" for letter in letters) + "]"


def _letterwise(sql: str, pairs: dict[str, str], name: str) -> str:
    each = f"lambda __c: coalesce({_mapped(pairs, '__c')}, {name}(__c))"
    return f"array_to_string(list_transform(string_split({sql}, ''), {each}), '')"


def _lowered(sql: str) -> str:
    """Mark capital sigmas, lower the rest, then replace each mark by the small sigma for its position in the word."""
    small = "".join(chr(c) for c in _NEW)
    capital = "".join(chr(c) for c in _NEW.values())
    text = f"lower(replace(replace({sql}, '{_SIGMA}', '{_MARK}'), '\u0130', 'i\u0307'))"
    text = f"translate({text}, '{capital}{_STOP}', '{small}{_STAND_IN}')"
    inside = literal(f"{_MARK}([{_IGNORED}]*[{_CASED}{_MARK}])")
    # twice, since a mark that ended one match could not start the next; a pattern is compiled where it is written
    text = f"list_reduce([{text}, '', ''], lambda __t, __i: regexp_replace(__t, {inside}, '\u03c3\\1', 'g'))"
    text = f"regexp_replace({text}, {literal(f'([{_CASED}][{_IGNORED}]*){_MARK}')}, '\\1\u03c2', 'g')"
    return f"translate({text}, '{_MARK}{_STAND_IN}', '\u03c3{_STOP}')"


_UPPER = {
    **{chr(c): chr(c).upper() for c in _SPECIAL if len(chr(c).upper()) > 1},
    **{chr(c): chr(upper) for c, upper in _NEW.items()},
}
_LOWER_PATTERN = _pattern({_SIGMA: "", "\u0130": "", **{chr(c): "" for c in _NEW.values()}})
_UPPER_PATTERN = _pattern(_UPPER)
_TITLE = {
    **{chr(c): chr(c).title() for c in _SPECIAL if chr(c).title() != chr(c).upper()},
    **{letter: letter.title() for letter, capital in _UPPER.items() if len(capital) > 1},
    **{letter: capital for letter, capital in _UPPER.items() if len(capital) == 1},
}  # fmt: skip
