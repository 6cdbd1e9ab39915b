"""What a changed program means for its storage: compared at every start, adopted, filled, replayed, reset."""
