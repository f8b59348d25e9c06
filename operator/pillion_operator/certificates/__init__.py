"""The certificate authority, and all that it signs: the webhook's certificate and the gateways'."""
