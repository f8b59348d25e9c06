"""Injection of deliverers into pods: the decision, the patch, the webhook, and missed pods."""
