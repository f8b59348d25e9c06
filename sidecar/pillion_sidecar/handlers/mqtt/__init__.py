"""MQTT 5."""
