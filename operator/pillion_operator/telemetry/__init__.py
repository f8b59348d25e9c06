"""The operator's metrics, probes and log events."""
