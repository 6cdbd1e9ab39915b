"""Writing records: transactions with a mark in them, whole batches by compiled code, or librdkafka."""
