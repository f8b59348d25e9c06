"""Whether an installation works: a configuration of its own, from the resources to a listener."""
