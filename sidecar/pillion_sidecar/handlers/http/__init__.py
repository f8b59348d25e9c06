"""HTTP/1.1 out: one small sender that the handlers over HTTP share."""
