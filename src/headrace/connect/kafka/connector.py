"""One topic of a cluster as a program names it: a source for `source=`, and a sink for `.to(…)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan, UnknownColumn
from headrace.connect.formats import format_named
from headrace.connect.kafka.sink import KafkaSink, TooLarge, refuse_private
from headrace.connect.kafka.source import KafkaSource
from headrace.connect.topics import TopicSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connect.format import Format
    from headrace.connect.sink import Form


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConnector(KafkaSource):
    """A topic that is read, or written to. As a sink: `key`, `format`, `key_format`, `too_large` and `partitions`."""

    key: tuple[str, ...] = ()
    format: Format = field(default_factory=lambda: format_named("json"))
    key_format: Format | None = None
    too_large: TooLarge = "fail"

    @property
    def form(self) -> Form:
        """Rows, as long as it is not known of which step: `for_step` decides."""
        return "rows"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> KafkaSink:
        """Return the sink for a step's rows: a table's changelog by its key, or the rows of a stream.

        Raises:
            InvalidPlan: a table has no key, or another one than `key` says; columns are private.
            UnknownColumn: the rows have no such key column.

        """
        refuse_private(self.topic, sealed)
        for name in self.key:
            if name not in schema.names:
                raise UnknownColumn(name, step=f"to {self.topic}", columns=schema.names)
        if is_table and key is None:
            raise InvalidPlan(
                f'a table without a key cannot be written to the topic "{self.topic}"',
                hint="Keep the key's columns in .select(…), or write what happened: .changes().to(…).",
            )
        if is_table and self.key and self.key != key:
            raise InvalidPlan(
                f'the records of a table in the topic "{self.topic}" have the table\'s key, {", ".join(key or ())}',
                hint="Leave key= out.",
            )
        spec = TopicSpec(name=self.topic, schema=schema, key=(key or ()) if is_table else self.key, changelog=is_table)
        return KafkaSink(
            address=self.address,
            topic=spec,
            format=self.format,
            key_format=self.key_format,
            partitions=self.partitions,
            too_large=self.too_large,
        )
