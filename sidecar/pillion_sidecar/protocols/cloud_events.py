"""CloudEvents: structured events over HTTP (HTTP binding 1.0)."""

from pillion_sidecar.protocols.declaration import (
    BATCH_RULES,
    HTTP_CREDENTIALS,
    BatchOptions,
    Protocol,
    http_schemes,
)

PROTOCOL = Protocol(
    name="CloudEvents",
    summary="one structured event per request (HTTP binding 1.0)",
    manual="For anything that takes webhooks. One `POST` for each delivery carries one event in "
    "structured mode; [what is sent](../listeners.md#cloudevents-requests) and what counts "
    "as success. With `cloudEvents.maxBatch`, a request carries several events "
    "([batches](../listeners.md#batches-of-cloudevents)).",
    schemes=http_schemes(),
    credentials=HTTP_CREDENTIALS,
    takes_proxy=True,
    handler="pillion_sidecar.handlers.cloudevents:create_handler",
    options=BatchOptions,
    option_rules=BATCH_RULES,
)
