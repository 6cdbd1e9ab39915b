"""What Spark finds under the name "headrace": readers and writers of topics of an embedded log, readers of Kafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from headrace.engine.spark.datasource import batch, columns, kafka, stream, subscription, writer
from headrace.engine.spark.datasource.kafka_options import is_kafka, kafka_options
from headrace.engine.spark.datasource.options import read_options, write_options
from headrace.log import Log

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class Headrace(DataSource):
    """The format "headrace". Records are columns of the topics; no row is ever a Python object."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "headrace"

    def schema(self) -> StructType:
        """Return the columns that are read: those of the topics, or those that the options name."""
        if is_kafka(self.options):
            return kafka.spark_schema(kafka_options(self.options))
        options = read_options(self.options)
        with Log(options.path) as log:
            return columns.spark_schema(columns.selected_columns(subscription.subscribed(log, options), options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        if is_kafka(self.options):
            return kafka.KafkaBatchReader(kafka_options(self.options), schema)
        return batch.BatchReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Return what reads a stream."""
        if is_kafka(self.options):
            return kafka.KafkaStreamReader(kafka_options(self.options), schema)
        return stream.StreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 -- Spark's signature
        """Return what appends a batch."""
        return writer.BatchWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 -- Spark's
        """Return what appends micro-batches."""
        return writer.StreamWriter(write_options(self.options), schema, overwrite=overwrite)
