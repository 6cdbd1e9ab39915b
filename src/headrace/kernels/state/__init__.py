"""What a shard keeps between epochs: tables that are scanned, tables that are looked up by value, and their files."""
