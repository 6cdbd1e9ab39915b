"""Checksums are those of zlib, whatever computes them: files of every release say so."""

from zlib import crc32 as crc_of_zlib

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.crc import crc32

MB = 1 << 20


@given(st.binary(max_size=5_000), st.integers(0, 64), st.integers(0, (1 << 32) - 1))
def test_any_bytes_at_any_place_and_after_any_others(data, start, before):
    part = memoryview(data)[start:]
    assert crc32(part) == crc_of_zlib(part)
    assert crc32(part, before) == crc_of_zlib(part, before)
    assert crc32(part[::-1].tobytes()) == crc_of_zlib(part[::-1].tobytes())


def test_large_ones_and_every_length_around_the_steps_of_the_machine():
    data = np.random.default_rng(7).bytes(5 * MB + 13)
    assert crc32(data) == crc_of_zlib(data)
    for length in [*range(530), 4095, 4096, 4097, MB - 1, MB, MB + 1]:
        assert crc32(memoryview(data)[3 : 3 + length]) == crc_of_zlib(memoryview(data)[3 : 3 + length])


def test_buffers_of_arrow_and_numpy():
    numbers = np.arange(1_000)
    assert crc32(pa.py_buffer(numbers)) == crc32(numbers) == crc_of_zlib(numbers.tobytes())
    assert crc32(b"") == 0
    assert crc32(b"", 5) == 5
