"""Pods get their deliverer: whose, what is added, the webhook, its certificates, what it missed."""
