"""Standard Webhooks 1.0: signed JSON over HTTP."""

from pillion_sidecar.protocols.declaration import HTTP_CREDENTIALS, Protocol, http_schemes

PROTOCOL = Protocol(
    name="StandardWebhooks",
    summary="one signed JSON event per request (Standard Webhooks 1.0)",
    manual="For receivers that verify who has sent a webhook, with a library of "
    "[Standard Webhooks](https://www.standardwebhooks.com). One `POST` for each delivery carries "
    "one event and its signatures; [what is sent](../listeners.md#standard-webhooks-requests), the "
    "secrets, and what counts as success.",
    schemes=http_schemes(),
    handler="pillion_sidecar.handlers.standard_webhooks:create_handler",
    credentials=(*HTTP_CREDENTIALS, "signing"),
    takes_proxy=True,
    required_credentials=("signing",),
    level=3,
)
