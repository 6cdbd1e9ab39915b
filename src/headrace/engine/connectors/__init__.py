"""Connectors as a service: workers that share the connectors of programs, and what is wanted of each."""
