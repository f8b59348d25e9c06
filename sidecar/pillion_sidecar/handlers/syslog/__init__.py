"""Syslog over TCP and TLS."""
