"""What the handlers of message brokers share."""
