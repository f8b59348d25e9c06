"""The pillion command."""
