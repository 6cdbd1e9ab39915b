"""The `headrace` command: a window on apps, topics and views. Nothing imports it."""
