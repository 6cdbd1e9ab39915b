"""Sealed values: private columns hold tokens, `sealed:v1:<topic>:<key>:<ciphertext>`, instead of their values.

The cipher is AES-SIV: with one key, equal values have equal tokens, so rows can still be compared. Without its key, a
token shows only that, and the length of the value. A token names the key that it needs, so it may be copied anywhere:
it can be opened as long as that key exists, and reads as null afterwards.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import CorruptBatch, InvalidRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    from headrace.log.privacy.keyfile import Key, KeyFile, Subject

    Secrets = Callable[[str], Mapping[bytes, bytes | None] | None]
    """The keys of a topic by its id; None if the topic was deleted, and its keys with it."""

_PREFIX = "sealed:v1:"
_TOPIC, _KEY = 32, 16  # characters of a topic's and a key's id
_START = len(_PREFIX)
_TOPIC_END = _START + _TOPIC
_KEY_END = _TOPIC_END + 1 + _KEY
_MARK = b"\0"  # before the value: an empty text cannot be encrypted


def texts(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Return the subjects in a column as text."""
    if pa.types.is_binary(column.type):
        return [None if value is None else value.hex() for value in column.to_pylist()]
    subjects: list[str | None] = column.cast(pa.string()).to_pylist()
    return subjects


def seal(table: pa.Table, private: Mapping[str, str], topic: str, keys: KeyFile) -> pa.Table:
    """Return records with tokens in their private columns; `private` maps each private column to its subject column.

    Raises:
        AppendFailed: the disk refused a new key.

    """
    pairs = {
        name: list(zip(texts(table.column(subject)), table.column(name).to_pylist(), strict=True))
        for name, subject in private.items()
        if table.column(name).null_count < table.num_rows
    }
    wanted = {(private[name], text) for name, some in pairs.items() for text, value in some if value is not None}
    keys_by_subject = keys.keys_of([(subject, text) for subject, text in wanted if text is not None])
    sealers = {subject: _Sealer(topic, key) for subject, key in keys_by_subject.items()}
    for name, some in pairs.items():
        at = table.schema.get_field_index(name)
        tokens_by_pair = {pair: _token(sealers, private[name], *pair) for pair in set(some)}
        field = table.schema.field(at)
        tokens = pa.array([tokens_by_pair[pair] for pair in some], pa.string()).cast(field.type)
        table = table.set_column(at, field, pa.chunked_array([tokens]))
    return table


def _token(
    sealers: Mapping[Subject, _Sealer], column: str, subject: str | None, value: str | bytes | None
) -> str | None:
    return None if value is None or subject is None else sealers[column, subject].token(value)


class _Sealer:
    """Seals values with one key."""

    def __init__(self, topic: str, key: Key) -> None:
        self._head = f"{_PREFIX}{topic}:{base64.urlsafe_b64encode(key.id).decode()}:"
        self._bound = [self._head.encode()]
        self._cipher = _cipher(key.secret)

    def token(self, value: str | bytes) -> str:
        raw = value.encode() if isinstance(value, str) else value
        return self._head + base64.urlsafe_b64encode(self._cipher.encrypt(_MARK + raw, self._bound)).decode()


def unseal(batch: pa.RecordBatch, columns: Iterable[str], secrets: Secrets) -> pa.RecordBatch:
    """Return a batch with the values of these columns, null where the key was destroyed.

    Raises:
        CorruptBatch: a value is not a token, or its key was never in the key file.

    """
    opener = _Opener(secrets)
    for name in columns:
        at = batch.schema.get_field_index(name)
        if at >= 0 and batch.column(at).null_count < batch.num_rows:
            batch = batch.set_column(at, batch.schema.field(at), unsealed(batch.column(at), opener))
    return batch


def unsealed(column: pa.Array, opener: Callable[[str], bytes | None]) -> pa.Array:
    """Return the values of a column of tokens, or of lists of them."""
    if pa.types.is_list(column.type):
        starts = np.concatenate(
            [[0], np.cumsum(pc.fill_null(column.value_lengths(), 0).to_numpy(zero_copy_only=False))]
        )
        values = unsealed(column.flatten(), opener)
        lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values, mask=column.is_null())
        return lists.cast(column.type)
    tokens = column.cast(pa.string()).dictionary_encode()
    opened = pa.array([opener(token) for token in tokens.dictionary.to_pylist()], pa.binary())
    return opened.cast(column.type).take(tokens.indices)


def keys_named(batch: pa.RecordBatch, columns: Iterable[str]) -> set[bytes]:
    """Return the ids of the keys that the tokens in these columns need; the empty one is of what is no token."""
    found: set[bytes] = set()
    for name in columns:
        at = batch.schema.get_field_index(name)
        if at >= 0:
            ids = pc.utf8_slice_codeunits(batch.column(at).cast(pa.string()), _TOPIC_END + 1, _KEY_END)
            found |= {_key_id(text) for text in pc.unique(ids).to_pylist() if text is not None}
    return found


def _key_id(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text)
    except ValueError:
        return b""


class _Opener:
    """Opens tokens of any key and topic."""

    def __init__(self, secrets: Secrets) -> None:
        from cryptography.exceptions import InvalidTag

        self._secrets, self._invalid = secrets, InvalidTag
        self._topics: dict[str, Mapping[bytes, bytes | None] | None] = {}
        self._ciphers: dict[str, AESSIV | None] = {}

    def __call__(self, token: str) -> bytes | None:
        head = token[: _KEY_END + 1]
        try:
            if head not in self._ciphers:
                self._ciphers[head] = self._cipher_of(head)
            cipher = self._ciphers[head]
            if cipher is None:
                return None
            raw = base64.urlsafe_b64decode(token[_KEY_END + 1 :])
            return bytes(cipher.decrypt(raw, [head.encode()]))[len(_MARK) :]
        except (ValueError, LookupError, self._invalid):
            raise CorruptBatch(
                f"a value of a private column cannot be unsealed: {token[: _KEY_END + 1]}…",
                detail="It is not a token, or its key was never in the topic's key file.",
                hint="Restore the key file from a newer copy, then forget again whom that copy still knows.",
            ) from None

    def _cipher_of(self, head: str) -> AESSIV | None:
        if not head.startswith(_PREFIX):
            raise ValueError(head)
        topic = head[_START:_TOPIC_END]
        if topic not in self._topics:
            self._topics[topic] = self._secrets(topic)
        keys_by_id = self._topics[topic]
        secret = None if keys_by_id is None else keys_by_id[base64.urlsafe_b64decode(head[_TOPIC_END + 1 : _KEY_END])]
        return None if secret is None else _cipher(secret)


def _cipher(secret: bytes) -> AESSIV:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # not needed without private columns

    return AESSIV(secret)


def refuse_unsealed(table: pa.Table, columns: Iterable[str], topics: Iterable[str], *, topic: str) -> None:
    """Refuse values that are not tokens of these topics, where tokens are appended unchanged.

    Raises:
        InvalidRows: there is one.

    """
    ids = "|".join(sorted(topics))
    pattern = rf"^{_PREFIX}({ids}):[\w-]{{{_KEY}}}:[\w=-]+$"
    for name in columns:
        values = table.column(name).combine_chunks()
        values = (values.flatten() if pa.types.is_list(values.type) else values).cast(pa.string())
        fits = pc.match_substring_regex(values, pattern)
        at = pc.index(fits, value=False).as_py()
        if at >= 0:
            raise InvalidRows(
                f'rows[{at}]: the column "{name}" of topic "{topic}" takes sealed values only',
                detail="Its values are private to another topic, which has the keys.",
                hint="Append the tokens of that topic's batches(…, sealed=True), or let an app write the topic.",
            )
