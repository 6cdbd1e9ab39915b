"""Texts of times: which ones casts and patterns read, and what patterns write, as in Spark."""

import pytest
from adversaries import SCHEMA
from comparison import differences

from headrace.base.errors import WrongType
from headrace.expressions import scalar

pytestmark = pytest.mark.spark
ZONES = """
Z| Z|UTC|UT|GMT+1|UT-01|UTC+01:00:30|UTC+18:30|UTC +1|+1|+01|+01:00|+0130|+013|+1:5|+01:5|+1:05:30|+01:5:30|+01:00:30
+013000|+18|+18:00|+1800|+18:01|-18:00:01|+17:59:59|+24|+1:60|+0160|+|UTC+|-0|-00:00
""".replace("\n", "|").strip("|").split("|")  # fmt: skip
TIMES = [
    *(f"2024-02-29 10:11:12{zone}" for zone in ZONES),
    *(f"2024-02-29 {clock}" for clock in ("10", "10:", "10Z", "10+01:00", "10:11", "10:11:", "10:11Z", "10:11 +01:00")),
    *("2024-02-29T", "2024-02-29 ", "2024-02-29T10", "2024-02-29 10:11:12.Z", "2024-02-29 10:11:12.5 +1"),
]
ISO = [
    *(f"{day}T10:11:12{rest}" for day in ("2024-02-29", "1969-12-31") for rest in (".9999999Z", ".123456789-00:30")),
    *(
        "2024-02-30T10:11:12Z",
        "2024-02-29T24:00:00Z",
        "0000-02-29T10:11:12+17:59",
        "2024-02-29 10:11:60",
        "2024-13-01",
        "0000-02-29",
    ),
]
READ = {
    "yyyy-MM-dd HH:mm:ss.SSS": "2024-02-29 10:11:12.5|2024-02-29 10:11:12.1234|2024-02-29 10:11:12.",
    "yyyy-MM-dd HH:mm:ss.SSSSSSSSS": "2024-02-29 10:11:12.123456789|2024-02-29 10:11:12.1",
    "yyyy-MM-dd HH:mm:ss[.SSS]": "2024-02-29 10:11:12|2024-02-29 10:11:12.5|2024-02-29 10:11:12.",
    "yyyy-MM-dd[ HH:mm[:ss]]": "2024-02-29|2024-02-29 10:11|2024-02-29 10:11:12|2024-02-29 10",
    "[yyyy-MM-dd][dd/MM/yyyy]": "2024-02-29|29/02/2024|",
    "yyyy-MM-dd'T'HH:mm:ssXXX": "2024-02-29T10:11:12Z|2024-02-29t10:11:12-05:30|2024-02-29T10:11:12+0100"
    "|2024-02-29T10:11:12+18:30|2024-02-29T10:11:12+01:60",
    "yyyy-MM-dd HH:mm:ssXX": "2024-02-29 10:11:12Z|2024-02-29 10:11:12+0100",
    "yyyy-MM-dd HH:mm:ssX": "2024-02-29 10:11:12+01|2024-02-29 10:11:12-0130|2024-02-29 10:11:12+01:30",
    "yyyy-MM-dd HH:mm:ssZ": "2024-02-29 10:11:12Z|2024-02-29 10:11:12+0100|2024-02-29 10:11:12+01:00",
    "yyyy-MM-dd hh:mm a": "2024-02-29 10:11 PM|2024-02-29 12:11 am|2024-02-29 12:11 PM|2024-02-29 00:11 AM"
    "|2024-02-29 13:11 AM|2024-02-29 1:11 AM",
    "yyyy-MM-dd h:mm": "2024-02-29 1:11|2024-02-29 12:11",
    "d MMM yyyy": "29 Feb 2024|29 FEB 2024|29 February 2024|31 Apr 2024|9 Sep 2024|9 Sept 2024",
    "MMMM d, yyyy": "February 29, 2024|Feb 29, 2024|MAY 1, 2024",
    "dd/MM/yy": "29/02/24|01/01/99|01/01/2099",
    "yyyy.MM.dd": "2024.02.29|2024x02x29",
    "yyyyMMdd": "20240229|240229",
}
EVERY = [3, pytest.param(1, marks=pytest.mark.prove)]
"""Each case costs both sides a query of its own where it raises: a third of them, or all with `--prove`."""
WRITTEN = ("y", "EEEE, d MMMM y", "yyyy'%Y%'", "'100%' yy", "y-MM", "yyyy yyyy")


def _text(text):
    escaped = text.replace("'", "\\'")
    return f"'{escaped}'"


def _given(text):
    """Return a text that no optimizer computes before there is a row."""
    return f"concat({_text(text)}, left(s, 0))"


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_a_time_that_is_written_out_is_one_for_spark_and_costs_a_statement_nothing(rivals, kind):
    times = ["2024-02-29", "2024-02-29 10:11:12", "2024-02-29T10:11:12.500", "0001-01-01", "9999-12-31 23:59:59.999999"]
    found = differences(rivals, [(f"cast('{time}' as {kind})", 0) for time in [*times, "0000-02-29"]])
    assert not found, "\n" + "\n".join(found)
    assert all("regexp" not in scalar(f"cast('{time}' as {kind})", SCHEMA, step="s").sql for time in times)
    assert "regexp" not in scalar("date '0000-02-29'", SCHEMA, step="s").sql


@pytest.mark.parametrize("every", EVERY)
def test_a_cast_reads_the_times_that_spark_reads(rivals, every):
    kinds = ("timestamp", "timestamp_ntz")
    texts = [f"cast({_given(time)} as {kind})" for kind in kinds for time in TIMES][::every]
    texts += [f"cast({_given(time)} as {kind})" for kind in (*kinds, "date") for time in ISO]
    found = differences(rivals, [(text, 0) for text in texts])
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("every", EVERY)
def test_a_pattern_reads_what_spark_reads(rivals, every):
    functions = ("to_timestamp", "try_to_timestamp", "to_date", "unix_timestamp", "to_timestamp_ntz")
    texts = [
        f"{functions[(place + at) % 5]}({_given(time)}, {_text(pattern)})"
        for place, (pattern, times) in enumerate(READ.items())
        for time in times.split("|")
        for at in (0, 1)
    ][::every]
    found = differences(rivals, [(text, 0) for text in texts])
    assert not found, "\n" + "\n".join(found)


def test_a_pattern_writes_what_spark_writes(rivals):
    texts = [f"date_format({column}, {_text(pattern)})" for pattern in WRITTEN for column in ("at", "day")]
    found = differences(rivals, [(text, 0) for text in texts])
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("pattern", ["yyyy-MM-dd[", "yyyy-MM-dd]", "HH:mm a", "yyyy yy", "yyyy{MM}", "MMM MM"])
def test_a_pattern_that_would_be_misread_is_refused(pattern):
    with pytest.raises(WrongType, match="format"):
        scalar(f"to_timestamp(s, {_text(pattern)})", SCHEMA, step="read")
