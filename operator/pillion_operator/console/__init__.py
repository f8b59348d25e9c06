"""The console of a cluster: a web page over what the operator's polling has."""
