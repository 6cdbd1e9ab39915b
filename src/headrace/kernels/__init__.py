"""What runs inside a task: Arrow in, Arrow out, compute and state in DuckDB."""
