"""What runs inside a task: Arrow in, Arrow out, computed by DuckDB."""
