"""HTTP/1.1: what the handlers over it share."""
