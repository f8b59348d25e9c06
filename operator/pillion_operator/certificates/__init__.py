"""The certificate authorities and the certificates of the webhook and of gateways."""
