"""The level-based reconciles, one for each kind."""
