"""Talking to the API server: a client for what the operator writes, and what it applies."""
