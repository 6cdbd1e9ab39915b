"""What an aggregate keeps of its rows and gives for them: numbers, exact sums, multisets, sketches, a user's own."""
