"""The operator: custom resources become running deliverers."""
