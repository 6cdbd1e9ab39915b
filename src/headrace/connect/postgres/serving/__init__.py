"""Views of an app served from PostgreSQL: an epoch of all of them is one transaction with its mark."""
