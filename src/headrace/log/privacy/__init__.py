"""Private columns: sealed with a key for each subject, forgotten with it."""
