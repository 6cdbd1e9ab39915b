"""The format "headrace" of plain PySpark: topics of the embedded log as frames, batch and streaming, in and out.

The options have Kafka's names. `source` is what Spark finds (through the module `pyspark_headrace`), `options` parses
the options, `subscription` finds topics and offsets, `columns` and `filters` say what is read of them, `batch` and
`stream` are the readers and `read_tasks` what their tasks do, `writer` and `staging` write.
"""
