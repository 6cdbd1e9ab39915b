"""Times written by compiled code are what Arrow writes, with T between date and clock."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.connect.formats.time_digits import written

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 to 9999
ODD = [FIRST, LAST, -1, 0, 1, -86_400_000_000, 951_782_400_000_000, 4_107_456_000_000_000]  # the last: near a leap day


def by_arrow(times):
    return pc.binary_replace_slice(times.cast(pa.string()), 10, 11, "T").cast(pa.string())


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_times_are_written_as_arrow_does(zone, nulls):
    random = np.random.default_rng(7)
    ticks = np.concatenate([ODD, random.integers(FIRST, LAST, 2_000)])
    times = pa.array(ticks, pa.int64(), mask=random.random(ticks.size) < nulls).cast(pa.timestamp("us", zone))
    found = written(times)
    found.validate(full=True)
    assert found.equals(by_arrow(times))
    assert written(times.slice(3, 50)).equals(by_arrow(times.slice(3, 50)))
    assert written(times.slice(0, 0)).equals(by_arrow(times.slice(0, 0)))
