"""What the operator says in ``status``: decided here, written by others."""
