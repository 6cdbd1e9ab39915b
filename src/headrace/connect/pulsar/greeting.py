"""The first words of Pulsar's protocol: whether a broker answers, accepts the login, and how large messages may be.

Pulsar's client tries again for as long as an operation may take, whatever the broker says, and then knows of a time-out
alone. So a wrong password could not be told from a broker that is down.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from headrace.base.broker_errors import BrokerFailed, LoginRefused
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect.messages.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.connect.messages.address import BrokerAddress

PORT, TLS_PORT = 6650, 6651
SECONDS = 10.0
_CONNECT, _CONNECTED, _ERROR = 2, 3, 14
"""Types of commands; a command is in the field of its type, or of the number here."""
_FIELD_OF_ERROR = 14
_MOST_BYTES = 1 << 20
_LARGEST = 5 << 20
"""What messages may have where a broker does not say."""
_LOGIN, _ACCESS = 3, 4


def greeted(address: BrokerAddress) -> int:
    """Log in to a broker and leave; return how many bytes a message may have there.

    Raises:
        Unavailable: it does not answer.
        LoginRefused: it does not accept the token, or user and password.
        AccessRefused: it does not let them in.
        BrokerFailed: it refuses, or is no Pulsar.

    """
    place = address.place
    try:
        kind, said = _answer(address)
    except OSError as error:
        raise Unavailable(f"{place} does not answer: {error}") from error
    except (IndexError, ValueError, struct.error) as error:
        raise BrokerFailed(f"{place} does not speak Pulsar's protocol") from error
    if kind == _CONNECTED:
        largest = said.get(3, _LARGEST)
        return largest if isinstance(largest, int) else _LARGEST
    code, text = said.get(2), said.get(3)
    why = address.hidden(text.decode(errors="replace")) if isinstance(text, bytes) else ""
    if code == _LOGIN:
        raise LoginRefused(f"{place} refuses the login: {why}", hint="Check the token, or user and password.")
    if code == _ACCESS:
        raise AccessRefused(f"{place} does not let the user in: {why}", hint="The user needs rights there.")
    raise BrokerFailed(f"{place} refuses the connection: {why or f'command {kind}'}")


def authentication(address: BrokerAddress) -> tuple[str, str]:
    """Return the method and the secret by which a client shows who it is: `none`, `token`, `basic` or `tls`."""
    user, password = address.login()
    if user and password:
        return "basic", f"{user}:{password}"
    if user or password:
        return "token", user or password
    return ("tls", "") if "certificate" in address.options else ("none", "")


def _answer(address: BrokerAddress) -> tuple[int, Mapping[int, int | bytes]]:
    """Return the type of a broker's answer to CONNECT, and its fields."""
    method, secret = authentication(address)
    command = _text(1, "headrace") + _number(4, 20)
    if method != "none":
        command += _text(5, method) + _text(3, secret)
    body = _number(1, _CONNECT) + _text(2, command)
    encrypted = address.scheme.endswith("+ssl")
    with socket.create_connection((address.host, address.port(TLS_PORT if encrypted else PORT)), SECONDS) as plain:
        one = tls_context(address).wrap_socket(plain, server_hostname=address.host) if encrypted else plain
        with one:
            one.sendall(struct.pack(">II", len(body) + 4, len(body)) + body)
            _, size = struct.unpack(">II", _read(one, 8))
            if size > _MOST_BYTES:
                raise ValueError
            fields = dict(_fields(_read(one, size)))
    kind = fields[1]
    if not isinstance(kind, int):
        raise ValueError  # noqa: TRY004 -- it is what others sent
    said = fields.get(_FIELD_OF_ERROR if kind == _ERROR else kind, b"")
    return kind, dict(_fields(said if isinstance(said, bytes) else b""))


def _read(one: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        some = one.recv(size - len(read))
        if not some:
            raise ConnectionError("it has ended the connection")
        read += some
    return read


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low]) if not rest else bytes([low | 0x80]) + _varint(rest)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: numbers, and bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:  # noqa: PLR2004 -- bytes
            size = varint()
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError(f"fields of kind {tag & 7} are not in these messages")
