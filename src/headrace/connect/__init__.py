"""The outside, one file a system."""
