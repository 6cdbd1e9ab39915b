"""What every capture of a database shares: errors, the column `_source`, new columns, and the keys that a topic has."""
