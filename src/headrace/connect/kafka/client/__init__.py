"""Talking to brokers: connections, administration, and what their errors mean."""
