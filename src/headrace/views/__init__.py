"""Where tables are served from."""
