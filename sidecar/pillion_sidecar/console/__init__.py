"""The console: a web page over the administration API."""
