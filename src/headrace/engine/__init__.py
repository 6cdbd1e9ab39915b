"""Epochs, commit and recovery, and the two carriers that run them."""
