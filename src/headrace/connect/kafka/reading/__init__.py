"""Reading records: whole batches by compiled code, or librdkafka where that does not do."""
