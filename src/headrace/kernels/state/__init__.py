"""What a shard keeps between epochs: rows that are scanned, rows that are looked up by value, and their files."""
