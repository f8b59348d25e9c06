"""The contents of ``status``: conditions and fields."""
