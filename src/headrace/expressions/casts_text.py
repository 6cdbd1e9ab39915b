"""Text ⇄ numbers, dates and timestamps exactly as the JVM reads and writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import literal
from headrace.expressions.binding import bound

if TYPE_CHECKING:
    from collections.abc import Sequence

_PAD = r"[\x00-\x20\x7f]*"  # what Spark trims before it reads a whole number or a time
_JAVA_PAD = r"[\x00-\x20]*"  # what Java trims before it reads a fraction
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_FAR = 99  # places: a point that is moved farther makes every decimal 0, or too large
_DAY = r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_ISO_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_NAMES = ("year", "month", "day", "hour", "minute", "second", "micros", "zone")  # the groups of a time, in order
_HOURS = "(?:1[0-7]|0[0-9])"
_SHIFT = rf"[+-](?:{_HOURS}|[0-9]|(?:{_HOURS}|[0-9]):[0-5]?[0-9]|(?:{_HOURS}|[0-9]):[0-5][0-9]:[0-5][0-9]"
_SHIFT += rf"|{_HOURS}[0-5][0-9](?:[0-5][0-9])?|18(?::?00){{0,2}}|18:0)"
_ZONE = rf"(?: *(Z|(?:UTC|GMT|UT)(?:{_SHIFT})?|{_SHIFT}))?"
_CLOCK = rf"([01]?[0-9]|2[0-3])(?::([0-5]?[0-9])(?::([0-5]?[0-9])(?:\.([0-9]*))?{_ZONE})?)?"


def integral_from_text(sql: str, duckdb_type: str, *, fail: str) -> str:
    """Return SQL that reads a whole number: sign and digits, padded by blanks and control characters."""
    return (
        f"(CASE WHEN regexp_full_match({sql}, '{_PAD}[+-]?[0-9]+{_PAD}')"
        f" THEN CAST(regexp_extract({sql}, '[+-]?[0-9]+') AS {duckdb_type}) WHEN {sql} IS NOT NULL THEN {fail} END)"
    )


def fraction_from_text(sql: str, duckdb_type: str, *, fail: str) -> str:
    """Return SQL that reads a float or double as Java does; what is too large is infinite, `1d` and `1f` are 1."""
    number = f"regexp_extract({sql}, '{_NUMBER}')"
    huge = f"CASE WHEN {number} LIKE '-%' THEN '-inf' ELSE 'inf' END"
    special = f"lower(regexp_extract({sql}, '^{_JAVA_PAD}(.*?){_JAVA_PAD}$', 1))"
    return (
        f"(CASE WHEN {sql} IS NULL THEN NULL"
        f" WHEN regexp_full_match({sql}, '{_JAVA_PAD}{_NUMBER}[fFdD]?{_JAVA_PAD}')"
        f" THEN coalesce(TRY_CAST({number} AS {duckdb_type}), CAST({huge} AS {duckdb_type}))"
        f" WHEN {special} IN ('inf', '+inf', 'infinity', '+infinity') THEN CAST('inf' AS {duckdb_type})"
        f" WHEN {special} IN ('-inf', '-infinity') THEN CAST('-inf' AS {duckdb_type})"
        f" WHEN {special} = 'nan' THEN CAST('nan' AS {duckdb_type}) ELSE {fail} END)"
    )


def fraction_to_text(sql: str) -> str:
    """Return SQL that writes a float or double as Java does: `1.0`, `1.0E10`, `NaN`, `Infinity`."""
    plain = f"abs({sql}) >= 0.001 AND abs({sql}) < 10000000"
    odd = bound("__d", sql, _odd_fraction("CAST(__d AS VARCHAR)"))
    return f"(CASE WHEN {sql} = 0 OR ({plain}) THEN CAST({sql} AS VARCHAR) ELSE {odd} END)"


def _odd_fraction(text: str) -> str:
    """Return SQL that writes the fraction `__d`, which is large, small or none; `text`: as DuckDB does."""
    sign = f"CASE WHEN starts_with({text}, '-') THEN '-' ELSE '' END"
    mantissa = f"split_part({text}, 'e', 1)"
    power = f"CAST(CAST(split_part({text}, 'e', 2) AS INTEGER) AS VARCHAR)"
    whole = "CAST(CAST(trunc(abs(__d)) AS BIGINT) AS VARCHAR)"
    digits = f"rtrim(replace(ltrim({text}, '-'), '.', ''), '0')"
    after = f"coalesce(nullif(substring({digits}, 2), ''), '0')"
    small = f"rtrim(ltrim(replace(ltrim({text}, '-'), '.', ''), '0'), '0')"
    after_small = f"coalesce(nullif(substring({small}, 2), ''), '0')"
    return (
        f"CASE WHEN isnan(__d) THEN 'NaN' WHEN isinf(__d) THEN {sign} || 'Infinity'"
        f" WHEN contains({text}, 'e')"
        f" THEN {mantissa} || CASE WHEN contains({text}, '.') THEN '' ELSE '.0' END || 'E' || {power}"
        f" WHEN abs(__d) < 1 THEN {sign} || left({small}, 1) || '.' || {after_small} || 'E-4'"
        f" ELSE {sign} || left({digits}, 1) || '.' || {after} || 'E' || CAST(length({whole}) - 1 AS VARCHAR) END"
    )


def decimal_from_text(sql: str, duckdb_type: str, *, fail: str) -> str:
    """Return SQL that reads a decimal as Java does: digits, a point, an exponent, padded by blanks."""
    number = f"regexp_extract({sql}, '{_NUMBER}')"
    return (
        f"(CASE WHEN regexp_full_match({sql}, '{_JAVA_PAD}{_NUMBER}{_JAVA_PAD}')"
        f" THEN {decimal_from_number(number, duckdb_type)} WHEN {sql} IS NOT NULL THEN {fail} END)"
    )


def decimal_from_number(text: str, duckdb_type: str) -> str:
    """Return SQL that reads the text of a number: DuckDB misreads exponents, so we move the point."""
    pattern = "^([+-]?)([0-9]*)[.]?([0-9]*)[eE]([+-]?[0-9]+)"
    groups = f"regexp_extract({text}, '{pattern}', ['sign', 'whole', 'part', 'power'])"
    digits, sign = "(__n.whole || __n.part)", "CASE WHEN __n.sign = '-' THEN '-' ELSE '' END"
    # TRY_CAST, since DuckDB computes constant arguments early, in branches that are not taken too
    point = "(length(__n.whole) + TRY_CAST(left(__n.power, 9) AS INTEGER))"
    shifted = (
        f"CASE WHEN ltrim({digits}, '0') = '' OR {point} < -{_FAR} THEN '0'"
        f" WHEN {point} <= 0 THEN '0.' || repeat('0', -{point}) || {digits}"
        f" WHEN {point} > length({digits}) + {_FAR} THEN repeat('9', {_FAR})"
        f" WHEN {point} >= length({digits}) THEN {digits} || repeat('0', {point} - length({digits}))"
        f" ELSE left({digits}, {point}) || '.' || substring({digits}, {point} + 1) END"
    )
    moved = bound("__n", groups, f"{sign} || {shifted}")
    return f"CAST(CASE WHEN regexp_matches({text}, '[eE]') THEN {moved} ELSE {text} END AS {duckdb_type})"


def date_from_text(sql: str, *, fail: str) -> str:
    """Return SQL that reads a date: `y`, `y-m` or `y-m-d`, then anything behind a blank or a T."""
    pattern = f"(?s)^{_PAD}{_DAY}(?:[ T].*)?)?)?{_PAD}$"
    year, month, day = (_part(name, "1") for name in _NAMES[:3])
    return (
        f"(CASE WHEN regexp_full_match({sql}, '(?s){_ISO_DAY}(?:[ T].*)?') THEN CAST(left({sql}, 10) AS DATE)"
        f" ELSE {_read(sql, pattern, _NAMES[:3], f'make_date({year}, {month}, {day})', fail)} END)"
    )


def timestamp_from_text(sql: str, *, zoned: bool, fail: str) -> str:
    """Return SQL that reads a timestamp: a date, perhaps a time, and behind its seconds perhaps `Z`, `UTC` or `+hh:mm`.

    Names of regions and times without a date are not read: they raise. Without `zoned`, the zone is not applied.
    """
    iso = f"{_ISO_DAY}[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{{1,9}})?"
    at = f"CAST(left({sql}, length({sql}) - 6) AS TIMESTAMP)"
    minutes = (
        f"CAST(left(right({sql}, 6), 3) AS BIGINT) * 60 + CAST(left(right({sql}, 6), 1) || right({sql}, 2) AS BIGINT)"
    )
    shifted = f"make_timestamp(epoch_us({at}) - ({minutes}) * 60000000)" if zoned else at
    pattern = f"^{_PAD}{_DAY}(?:[ T]{_CLOCK})?)?)?{_PAD}$"
    day = ", ".join(_part(name, "1") for name in _NAMES[:3])
    hour, minute, second = (_part(name, "0") for name in _NAMES[3:6])
    micros = "CAST(left(rpad(__t.micros, 6, '0'), 6) AS BIGINT)"
    base = f"epoch_us(make_timestamp({day}, {hour}, {minute}, CAST({second} AS DOUBLE))) + {micros}"
    shift = f" - {_zone_micros('__t.zone')}" if zoned else ""
    return (
        f"(CASE WHEN regexp_full_match({sql}, '{iso}Z?') THEN CAST({sql} AS TIMESTAMP)"
        f" WHEN regexp_full_match({sql}, '{iso}[+-](?:0[0-9]|1[0-7]):[0-5][0-9]') THEN {shifted}"
        f" ELSE {_read(sql, pattern, _NAMES, f'make_timestamp({base}{shift})', fail)} END)"
    )


def time_to_text(sql: str) -> str:
    """Return SQL that writes a date or timestamp as Java does: years after 9999 have a +, those before 0000 a -."""
    text = f"CAST({sql} AS VARCHAR)"
    sign = f"CASE WHEN year({sql}) < 0 THEN '-' WHEN year({sql}) > 9999 THEN '+' ELSE '' END"
    year = f"CAST(abs(year({sql})) AS VARCHAR)"
    day, clock = (f"regexp_extract({text}, '{part}')" for part in ("-[0-9]{2}-[0-9]{2}", " [0-9:.]+$"))
    odd = f"{sign} || repeat('0', CAST(greatest(4 - length({year}), 0) AS INTEGER)) || {year} || {day} || {clock}"
    return f"(CASE WHEN year({sql}) BETWEEN 1 AND 9999 OR {sql} IS NULL THEN {text} ELSE {odd} END)"


def _read(sql: str, pattern: str, names: Sequence[str], value: str, fail: str) -> str:
    """Return SQL that reads a text by a pattern, whose groups are `__t.name` in `value`; the first is in each match."""
    groups = f"regexp_extract({sql}, {literal(pattern)}, [{', '.join(map(literal, names))}])"
    each = f"CASE WHEN __t.{names[0]} <> '' THEN {value} WHEN {sql} IS NOT NULL THEN {fail} END"
    return bound("__t", groups, each)


def _part(name: str, default: str) -> str:
    return f"CAST(coalesce(nullif(__t.{name}, ''), '{default}') AS BIGINT)"


def _zone_micros(zone: str) -> str:
    hours, minutes, seconds = (
        f"CAST('0' || regexp_extract({zone}, '[+-]{part}', 1) AS BIGINT)"
        for part in (
            "([0-9]{1,2})",
            "(?:[0-9]{2}|[0-9]:):?([0-9]{1,2})",
            "(?:[0-9]{2}|[0-9]:):?[0-9]{2}:?([0-9]{2})",
        )
    )
    sign = f"CASE WHEN contains({zone}, '-') THEN -1 ELSE 1 END"
    return f"({sign}) * (({hours} * 60 + {minutes}) * 60 + {seconds}) * 1000000"
