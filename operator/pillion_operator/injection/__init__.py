"""Pods get their deliverer: whose, what is added, the webhook, what it missed."""
