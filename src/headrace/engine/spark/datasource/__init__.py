"""The format "headrace" of plain PySpark: topics of the embedded log as frames, batch and streaming, in and out.

The options are Kafka's words. `source` is what Spark finds (through the module `pyspark_headrace`), `options` what a
user may say, `subscription` which topics and offsets that means, `columns` and `filters` what is read of them,
`batch` and `stream` the readers, `writer` and `staging` the way in.
"""
