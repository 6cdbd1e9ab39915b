"""Datagrams, many at a time: one call of the system takes what has arrived, and hands out no object a datagram.

Linux has `recvmmsg`, which Python does not offer; elsewhere each datagram is a call.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import mmap
import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST, SLOT = 512, 1 << 16
"""So many datagrams are taken at once; one has 64 KB at most."""
RECEIVE_BUFFER = 32 << 20
"""What the kernel is asked to hold; without privileges it holds less (`net.core.rmem_max`)."""
_NAME = 28
_WAIT_FOR_ONE = 0x10000
_WAITS = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)


class UdpAddress(NamedTuple):
    """Where datagrams go: `udp://host:port`; a multicast group with the address of an interface."""

    host: str
    port: int
    interface: str | None = None

    @property
    def is_multicast(self) -> bool:
        """Whether the host is a multicast group."""
        try:
            return ipaddress.ip_address(self.host).is_multicast
        except ValueError:
            return False

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET


def udp_address(url: str, *, scheme: str = "udp", port: int | None = None) -> UdpAddress:
    """Return the address that a text names.

    Raises:
        InvalidPlan: it is none.

    """
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        found = port if parts.port is None else parts.port
        fits = parts.scheme == scheme and found is not None and not options.keys() - {"interface"}
    except (ValueError, TypeError, AttributeError):
        fits = False
    if not fits or not parts.hostname or found is None:
        raise InvalidPlan(
            f"this is no address of the form {scheme}://host:port",
            hint=f'For example "{scheme}://0.0.0.0:5000", or of a multicast group "{scheme}://239.1.2.3:5000?interface=10.0.0.7".',
        )
    return UdpAddress(parts.hostname, found, options.get("interface"))


def receiving_socket(address: UdpAddress) -> socket.socket:
    """Return a socket that is bound to an address, and a member of its group.

    Raises:
        OSError: nobody can listen there.

    """
    bound = socket.socket(address.family, socket.SOCK_DGRAM)
    try:
        if address.is_multicast:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option in (getattr(socket, "SO_RCVBUFFORCE", 33), socket.SO_RCVBUF):
            try:
                bound.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER)
                break
            except OSError:
                continue
        bound.bind((address.host, address.port))
        if address.is_multicast and address.family == socket.AF_INET:
            member = socket.inet_aton(address.host) + socket.inet_aton(address.interface or "0.0.0.0")  # noqa: S104 -- any
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        elif address.is_multicast:
            number = socket.if_nametoindex(address.interface) if address.interface else 0
            member = socket.inet_pton(socket.AF_INET6, address.host) + struct.pack("@I", number)
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 100_000))
    except BaseException:
        bound.close()
        raise
    return bound


def sending_socket(address: UdpAddress) -> socket.socket:
    """Return a socket that sends to an address."""
    sender = socket.socket(address.family, socket.SOCK_DGRAM)
    if address.is_multicast and address.interface and address.family == socket.AF_INET:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address.interface))
    return sender


class _Message(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32),
        ("parts", ctypes.c_void_p), ("part_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int), ("padding", ctypes.c_int),
        ("length", ctypes.c_uint32),
    )  # fmt: skip


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Datagrams:
    """Receives from a socket; what `receive` returns is good until the next call."""

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        self._memory = mmap.mmap(-1, MOST * SLOT)  # only what is written to takes memory
        self._view = memoryview(self._memory)
        self._names = np.zeros((MOST, _NAME), np.uint8)
        self._lengths = np.zeros(MOST, np.uint32)
        self._call = getattr(ctypes.CDLL(None, use_errno=True), "recvmmsg", None) if os.name == "posix" else None
        if self._call is None:
            return
        anchor = ctypes.c_char.from_buffer(self._memory)
        base = ctypes.addressof(anchor)
        del anchor  # or the memory could not be closed
        self._parts = (_Part * MOST)(*(_Part(base + at * SLOT, SLOT) for at in range(MOST)))
        self._messages = (_Message * MOST)()
        for at, message in enumerate(self._messages):
            message.name, message.name_length = self._names.ctypes.data + at * _NAME, _NAME
            message.parts, message.part_count = ctypes.addressof(self._parts[at]), 1
        words = np.frombuffer(memoryview(self._messages).cast("B"), np.uint32).reshape(MOST, -1)
        self._lengths = words[:, _Message.length.offset // 4]
        self._name_lengths = words[:, _Message.name_length.offset // 4]

    def receive(self) -> int:
        """Wait for a tenth of a second, and return how many datagrams were received.

        Raises:
            OSError: the socket fails.

        """
        if self._call is None:
            return self._receive_one()
        self._name_lengths[:] = _NAME
        got: int = self._call(self._socket.fileno(), self._messages, MOST, _WAIT_FOR_ONE, None)
        if got >= 0:
            return got
        number = ctypes.get_errno()
        if number in _WAITS:
            return 0
        raise OSError(number, os.strerror(number))

    def _receive_one(self) -> int:
        try:
            self._lengths[0] = self._socket.recv_into(self._view[:SLOT])
        except BlockingIOError:
            return 0
        return 1

    def each(self, count: int) -> Iterator[memoryview]:
        """Yield the datagrams that were received."""
        view = self._view
        for at, length in zip(range(0, count * SLOT, SLOT), self._lengths[:count].tolist(), strict=True):
            yield view[at : at + length]

    def senders(self, count: int) -> list[str]:
        """Return the address of each sender, as `host:port`."""
        names = self._names[:count]
        return [_sender(bytes(name)) for name in names]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _sender(name: bytes) -> str:
    port = int.from_bytes(name[2:4], "big")
    if int.from_bytes(name[:2], "little") == socket.AF_INET6:
        return f"[{socket.inet_ntop(socket.AF_INET6, name[8:24])}]:{port}"
    return f"{socket.inet_ntop(socket.AF_INET, name[4:8])}:{port}"


def lost(bound: socket.socket) -> int:
    """Return how many datagrams the kernel has dropped for a socket, 0 where it does not say."""
    try:
        inode = str(os.fstat(bound.fileno()).st_ino)
        for name in ("udp", "udp6"):
            with open(f"/proc/net/{name}", encoding="ascii") as table:  # noqa: PTH123 -- no file
                for line in table:
                    fields = line.split()
                    if len(fields) > 9 and fields[9] == inode:  # noqa: PLR2004 -- the kernel's columns
                        return int(fields[-1])
    except OSError:
        pass
    return 0
