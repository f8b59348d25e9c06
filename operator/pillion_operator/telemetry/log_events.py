"""The events that the operator logs, under names that stay: scripts and alerts match on them.

Rooms write ``logger.warning("…", extra={"event": "drift-repaired", …})``. A test reads the sources
and fails when one uses a name that is not here; ``docs/reference/operator-events.md`` is made from
this table.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogEvent:
    """What a log record with this name means."""

    name: str
    level: str
    meaning: str
    #: The fields that it has besides those of every record.
    fields: tuple[str, ...] = ()


_PROCESS = (
    LogEvent(
        "operator-waiting",
        "WARNING",
        "The API server does not answer yet, or the definitions are not installed. It is looked "
        "for again every two seconds.",
    ),
    LogEvent(
        "operator-started",
        "INFO",
        "The cluster is known, and the probes, the metrics and the webhook are served.",
        ("telemetry",),
    ),
    LogEvent(
        "listing-failed",
        "WARNING",
        "The cluster could not be listed, at the start or for the regular comparison. It is tried "
        "again.",
    ),
    LogEvent(
        "watch-missed",
        "WARNING",
        "A listing has found changes that no watch had brought. They are taken over.",
        ("kind", "count"),
    ),
    LogEvent(
        "watch-retried",
        "WARNING",
        "A request of a watch failed, and is made again. A watch that does not begin for ten "
        "minutes fails the probe `/livez`.",
    ),
    LogEvent(
        "kopf-told",
        "WARNING",
        "kopf, which watches the API server, has something else to tell; with `--log-level DEBUG` "
        "all that it does.",
    ),
    LogEvent("leadership-acquired", "INFO", "This replica leads: it writes from now on."),
    LogEvent(
        "leadership-failure",
        "WARNING",
        "The Lease could not be read or written. It is tried again; a leader that cannot renew it "
        "in time writes nothing until it has.",
    ),
    LogEvent(
        "leadership-paused",
        "WARNING",
        "The Lease could not be renewed for 10 seconds. This replica writes nothing until it is.",
    ),
    LogEvent("leadership-resumed", "INFO", "The Lease is renewed: this replica writes again."),
    LogEvent(
        "definition-gone",
        "WARNING",
        "A custom resource definition is absent or being deleted. Its objects are taken as they "
        "were last seen.",
        ("kind",),
    ),
    LogEvent(
        "definition-back",
        "INFO",
        "A custom resource definition is back. Objects that are missing five minutes later are "
        "taken as deleted.",
        ("kind",),
    ),
    LogEvent(
        "token-key-failed",
        "WARNING",
        "The Secret with the key of deliverers' tokens cannot be read or made. Nothing is "
        "reconciled until it can be.",
    ),
)

_RECONCILING = (
    LogEvent(
        "reconcile-put-off",
        "WARNING",
        "The API server refused a request, or could not be reached. The object is reconciled again "
        "after a pause.",
        ("object",),
    ),
    LogEvent(
        "reconcile-failed",
        "ERROR",
        "An error of the operator itself, with its trace. The object is reconciled again after a "
        "pause; the others are not affected. Its condition Ready says `InternalError`.",
        ("object",),
    ),
    LogEvent(
        "failure-untold",
        "WARNING",
        "The status of an object could not say that its reconcile failed. It is tried again with "
        "the reconcile.",
        ("object",),
    ),
    LogEvent(
        "judgement-failed",
        "ERROR",
        "An error of the operator itself, with its trace: it cannot judge an object, which is not "
        "accepted for the reason `InternalError`. Other objects are not affected.",
        ("object",),
    ),
    LogEvent(
        "drift-repaired",
        "WARNING",
        "Somebody has changed or deleted an object of the operator's, and it is as it was.",
        ("kind", "times"),
    ),
    LogEvent(
        "poke-failed",
        "WARNING",
        "A pod could not be annotated. Its kubelet brings the configuration later by itself.",
        ("namespace", "pod"),
    ),
    LogEvent(
        "deliverer-lost-pending",
        "WARNING",
        "A deliverer has ended together with its volume while indications waited there: exactly as "
        "many where it said so at its end, else as many as it was last seen to hold.",
        ("namespace", "service", "pod", "pending", "exact"),
    ),
    LogEvent("event-dropped", "INFO", "A Kubernetes Event could not be published."),
)

_INJECTION = (
    LogEvent(
        "bad-review",
        "WARNING",
        "Somebody has asked the webhook what is no question about a pod. It was answered 400.",
    ),
    LogEvent(
        "missed-search-failed",
        "WARNING",
        "Pods without a deliverer could not be searched for. It is tried again.",
    ),
    LogEvent("pod-evicted", "INFO", "A pod without its deliverer was evicted."),
    LogEvent(
        "eviction-refused",
        "INFO or WARNING",
        "A pod was not evicted: INFO where a disruption budget forbids it. It is tried again.",
    ),
    LogEvent("certificate-renewed", "INFO", "The webhook's CA or certificate was made anew."),
    LogEvent(
        "certificate-failed",
        "WARNING",
        "The webhook's certificate could not be read, renewed or loaded. It is tried again.",
    ),
    LogEvent(
        "certificate-unattended",
        "WARNING",
        "For a minute this replica has had no certificate that the API server trusts, and the "
        "leader has not seen to it: it may run with other values of the chart. This replica makes "
        "the certificate and writes caBundle, though it does not lead.",
    ),
    LogEvent(
        "bad-certificate",
        "WARNING",
        "The Secret with the webhook's certificate holds something else. The leader makes a new "
        "one.",
    ),
    LogEvent(
        "validation-untrusted",
        "INFO",
        "caBundle of the ValidatingWebhookConfiguration could not be read or written. Resources "
        "are not judged as they are applied; conditions say what is wrong. It is tried again.",
    ),
    LogEvent(
        "no-webhook-configuration",
        "WARNING",
        "The MutatingWebhookConfiguration is not there, so the API server asks nobody and nothing "
        "is injected.",
    ),
)

_GATEWAYS = (
    LogEvent(
        "gateway-authority-changed",
        "INFO",
        "The authority of gateways is known, at the start of a leader or after a renewal.",
    ),
    LogEvent(
        "gateway-authority-replaced",
        "WARNING",
        "Somebody has deleted the Secret with the authority of gateways, and so given it up. "
        "Another one takes its place.",
    ),
    LogEvent(
        "gateway-certificate-replaced",
        "INFO",
        "Somebody has deleted the Secret with a gateway's certificate. The gateway gets another "
        "key and certificate.",
        ("namespace", "service"),
    ),
    LogEvent(
        "gateway-authority-failed",
        "WARNING",
        "The authority of gateways could not be read, renewed or taken from the Secret that was "
        "named. Gateways keep their certificates; it is tried again.",
    ),
    LogEvent(
        "bad-gateway-authority",
        "WARNING",
        "The Secret with the authority of gateways holds something else. It is written anew.",
    ),
    LogEvent(
        "token-keys-failed",
        "WARNING",
        "The API server does not say with which keys service-account tokens are verified. Gateways "
        "go on with those that they have; it is tried again.",
    ),
)

LOG_EVENTS = (*_PROCESS, *_RECONCILING, *_INJECTION, *_GATEWAYS)
