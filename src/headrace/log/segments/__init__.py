"""The bytes of a partition: frames in segments, what points to them, and what a crash leaves of them."""
