"""The Spark carrier: the only place that knows pyspark."""
