"""CRC-32C (Castagnoli), the checksum of record batches: 8 bytes an instruction where the processor has one."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from headrace.connect.compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_HARDWARE = platform.machine() in ("x86_64", "AMD64") and binding.get_host_cpu_features().get("sse4.2", False)


def _tables() -> npt.NDArray[np.uint32]:
    """Return the tables of "slicing by 8": the checksum of each byte with 0 to 7 zero bytes behind it."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for row in range(1, 8):
        tables[row] = (tables[row - 1] >> 8) ^ tables[0][tables[row - 1] & 0xFF]
    return tables


_TABLES = _tables()


@intrinsic  # type: ignore[untyped-decorator]
def _step8(_context: Any, value: Any, word: Any) -> Any:  # noqa: ARG001 -- their types are what matters
    """Return a checksum after 8 more bytes: one instruction of SSE 4.2."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(64)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(wide, [wide, wide]), "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint64), generate


@compiled
def crc32c_by_tables(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return the checksum of `data[start:end]`, on any processor."""
    value = np.uint32(0xFFFFFFFF)
    at = start
    while at + 8 <= end:
        low = value ^ (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        value = (
            _TABLES[7, low & 0xFF]
            ^ _TABLES[6, (low >> 8) & 0xFF]
            ^ _TABLES[5, (low >> 16) & 0xFF]
            ^ _TABLES[4, (low >> 24) & 0xFF]
            ^ _TABLES[3, data[at + 4]]
            ^ _TABLES[2, data[at + 5]]
            ^ _TABLES[1, data[at + 6]]
            ^ _TABLES[0, data[at + 7]]
        )
        at += 8
    while at < end:
        value = _TABLES[0, (value ^ data[at]) & 0xFF] ^ (value >> np.uint32(8))
        at += 1
    return np.int64(value ^ np.uint32(0xFFFFFFFF))  # type: ignore[return-value]


@compiled
def crc32c_by_instruction(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return the checksum of `data[start:end]`, on processors with SSE 4.2."""
    value = np.uint64(0xFFFFFFFF)
    at = start
    while at + 8 <= end:
        word = np.uint64(0)
        for place in range(8):
            word |= np.uint64(data[at + place]) << np.uint64(8 * place)
        value = _step8(value, word)
        at += 8
    rest = np.uint32(value)
    while at < end:
        rest = _TABLES[0, (rest ^ data[at]) & 0xFF] ^ (rest >> np.uint32(8))
        at += 1
    return np.int64(rest ^ np.uint32(0xFFFFFFFF))  # type: ignore[return-value]


crc32c: Callable[..., int] = crc32c_by_instruction if _HARDWARE else crc32c_by_tables
"""The checksum of `data[start:end]` (bytes as uint8)."""
