"""Plug-ins: delivery by a program (docs/plugins.md)."""
