"""Tables of a real MariaDB are followed: their rows, then each change, whole transactions, exactly once."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import pytest
from following import capture_of, followed, records_of, rows_of, running

from headrace.log import Log


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        yield opened


def test_the_rows_of_a_table_come_first_and_then_each_change(schema, log):
    schema.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT seq, concat('v', seq) FROM seq_1_to_2500"
    )
    with running(capture_of(schema, "t"), log) as wait:
        wait(followed(schema, log))
        schema.execute(
            "UPDATE t SET v = NULL WHERE id = 1", "DELETE FROM t WHERE id = 2", "UPDATE t SET id = -3 WHERE id = 3"
        )
        wait(followed(schema, log))


COLUMNS = {
    "id": ("bigint unsigned PRIMARY KEY", "$id"),
    "b": ("boolean", "true"),
    "ti": ("tinyint", "-128"),
    "tu": ("tinyint unsigned", "255"),
    "si": ("smallint", "-32768"),
    "su": ("smallint unsigned zerofill", "65000"),
    "y": ("year", "2024"),
    "mi": ("mediumint", "-8388608"),
    "mu": ("mediumint unsigned", "16777215"),
    "i": ("int", "-2147483648"),
    "iu": ("int unsigned", "4294967295"),
    "bi": ("bigint", "-9223372036854775808"),
    "bu": ("bigint unsigned", "18446744073709551615"),
    "f": ("float", "0.1"),
    "d": ("double", "0.1"),
    "n": ("decimal(20, 4)", "-12345.6789"),
    "n1": ("decimal(5, 5)", "-0.00012"),
    "n2": ("decimal(38, 10) unsigned", "1234567890123456789012345678.0123456789"),
    "n3": ("decimal(65, 30)", "-12345678901234567890123456789012345.000000000000000000000000000009"),
    "n4": ("decimal(9)", "100"),
    "one": ("bit(1)", "1"),
    "bits": ("bit(64)", "18446744073709551615"),
    "few": ("bit(12)", "b'101010101010'"),
    "day": ("date", "'2024-02-29'"),
    "dt": ("datetime", "'1999-12-31 23:59:59'"),
    "dt6": ("datetime(6)", "'2024-02-29 01:02:03.000004'"),
    "dt3": ("datetime(3)", "'0999-01-01 01:02:03.004'"),
    "ts": ("timestamp NULL", "'2024-02-29 01:02:03'"),
    "ts6": ("timestamp(6) NULL", "'2037-02-28 20:02:03.5'"),
    "ts1": ("timestamp(1) NULL", "'1970-01-01 00:00:01.9'"),
    "tm": ("time", "'-838:59:59'"),
    "tm3": ("time(3)", "'-00:00:00.001'"),
    "tm6": ("time(6)", "'12:34:56.654321'"),
    "tm1": ("time(2)", "'-01:02:03.45'"),
    "c": ("char(5)", "'ab '"),
    "cl": ("char(5) CHARACTER SET latin1", "'é€'"),
    "v": ("varchar(9)", "'日本'"),
    "vl": ("varchar(300) CHARACTER SET latin1", "'naïve'"),
    "vs": ("varchar(30) CHARACTER SET sjis", "'日本'"),
    "vu": ("varchar(30) CHARACTER SET ucs2", "'日本'"),
    "vk": ("varchar(30) CHARACTER SET koi8r", "'мир'"),
    "t": ("text", r"'é\n'"),
    "lt": ("longtext CHARACTER SET utf8mb3", "repeat('é', 70000)"),
    "bin": ("binary(6)", r"x'0001ff00'"),
    "vb": ("varbinary(300)", r"x'00ff10'"),
    "bl": ("blob", r"x'00ff'"),
    "e": ("enum('sad', 'ök', 'x')", "'ök'"),
    "el": ("enum('a', 'é') CHARACTER SET latin1", "'é'"),
    "s": ("set('p', 'ö', 'r')", "'p,ö'"),
    "j": ("json", """'{"a": [1, "é"]}'"""),
    "g": ("point", "point(1, 2)"),
    "cs": ("varchar(5) COLLATE utf8mb4_bin", "'x'"),
}
"""A column of each type, and a value as SQL."""


def test_every_type_is_the_same_from_the_snapshot_and_from_a_change(schema, log):
    """Half of the rows are read, the others come as changes: no value may differ."""
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in COLUMNS.items())
    schema.execute(
        f"CREATE TABLE t ({columns}, stored int AS (ti - 1) STORED, virtual int AS (ti - 2) VIRTUAL) CHARSET utf8mb4"
    )
    insert = f"INSERT INTO t ({', '.join(COLUMNS)}) VALUES ({', '.join(each for _, each in COLUMNS.values())})"
    empty = "INSERT INTO t (id, c, v, t, bin, vb, bl, s, n, day) VALUES ($id, '', '', '', '', '', '', '', 0, '1-1-1')"
    nothing = "INSERT INTO t (id) VALUES ($id)"
    schema.execute(*(each.replace("$id", str(number)) for number, each in enumerate((insert, empty, nothing))))
    capture = capture_of(schema, "t")
    with running(capture, log) as wait:
        wait(lambda: "t" in log.topics() and len(rows_of(log, "t")) == 3)
        schema.execute(*(each.replace("$id", str(number + 10)) for number, each in enumerate((insert, empty, nothing))))
        wait(lambda: len(rows_of(log, "t")) == 6)
    now = {row["id"]: {name: value for name, value in row.items() if name[0] != "_"} for row in records_of(log, "t")}
    for number in range(3):
        read, changed = now[number], now[number + 10]
        assert read | {"id": 0} == changed | {"id": 0}
    whole = now[0]
    assert [whole[name] for name in ("b", "ti", "tu", "su", "y", "mu", "iu")] == [
        1,
        -128,
        255,
        65000,
        2024,
        2**24 - 1,
        2**32 - 1,
    ]
    assert (whole["bi"], whole["bu"], whole["f"], whole["d"]) == (
        -(2**63),
        2**64 - 1,
        struct.unpack("f", struct.pack("f", 0.1))[0],
        0.1,
    )
    assert (whole["n"], whole["n1"], whole["n4"]) == (Decimal("-12345.6789"), Decimal("-0.00012"), 100)
    assert whole["n2"] == Decimal("1234567890123456789012345678.0123456789")
    assert whole["n3"] == "-12345678901234567890123456789012345.000000000000000000000000000009"
    assert (whole["one"], whole["bits"], whole["few"]) == (True, 2**64 - 1, 0b101010101010)
    assert (whole["day"], whole["dt"]) == (dt.date(2024, 2, 29), dt.datetime(1999, 12, 31, 23, 59, 59))  # noqa: DTZ001 - no zone
    assert whole["dt6"] == dt.datetime(2024, 2, 29, 1, 2, 3, 4)  # noqa: DTZ001 - no zone
    assert whole["ts6"] == dt.datetime(2037, 2, 28, 20, 2, 3, 500000, tzinfo=dt.UTC)
    assert (whole["tm"], whole["tm3"], whole["tm6"], whole["tm1"]) == (
        "-838:59:59",
        "-00:00:00.001",
        "12:34:56.654321",
        "-01:02:03.45",
    )
    assert (whole["c"], whole["cl"], whole["v"], whole["vl"], whole["vs"]) == ("ab", "é€", "日本", "naïve", "日本")
    assert (whole["vu"], whole["vk"], whole["lt"]) == ("日本", "мир", "é" * 70000)
    assert (whole["bin"], whole["vb"], whole["bl"]) == (b"\x00\x01\xff\x00\x00\x00", b"\x00\xff\x10", b"\x00\xff")
    assert (whole["e"], whole["el"], whole["s"], whole["j"]) == ("ök", "é", "p,ö", '{"a": [1, "é"]}')
    assert (whole["stored"], whole["virtual"], len(whole["g"])) == (-129, -130, 25)
    assert set(now[2].values()) == {2, None}
