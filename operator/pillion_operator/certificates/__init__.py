"""The operator's own keys: certificate authorities, the certificates of the webhook and of
gateways, and the key of the tokens of deliverers."""
