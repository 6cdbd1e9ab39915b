"""What becomes of old records: retention, compaction, archives; and whether what is there is whole."""
