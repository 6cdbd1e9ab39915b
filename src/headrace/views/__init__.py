"""Stores that serve tables and streams as views."""
