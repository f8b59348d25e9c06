"""The client of the API server, and the applier of desired objects."""
