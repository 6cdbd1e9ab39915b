"""What an aggregate keeps of its rows, and its results: numbers, exact sums, multisets, sketches, a user's own."""
