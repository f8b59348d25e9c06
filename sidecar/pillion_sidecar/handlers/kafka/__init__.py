"""Kafka: a small producer. aiokafka encodes and decodes; connections are Pillion's."""
