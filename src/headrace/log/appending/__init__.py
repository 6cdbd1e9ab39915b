"""Rows on their way in: written and synced in groups, numbered by their producer, sent one by one in batches."""
