"""Tables of an app kept in tables of PostgreSQL: an epoch is one transaction with its mark."""
