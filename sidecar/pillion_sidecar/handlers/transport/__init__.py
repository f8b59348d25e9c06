"""Connections to listeners: what the handlers of all protocols share."""
