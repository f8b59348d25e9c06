"""What a person on call asks a running deliverer; no answer changes what it delivers."""
