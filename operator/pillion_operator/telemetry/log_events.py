"""The events that the operator logs. Their names are stable for scripts and alerts. Code writes
``logger.warning("…", extra={"event": "drift-repaired", …})``; a test finds names missing here, and
``docs/reference/operator-events.md`` is generated from this table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogEvent:
    name: str
    level: str
    meaning: str
    #: Its fields besides those of every record.
    fields: tuple[str, ...] = ()


LOG_EVENTS = (
    # The process
    LogEvent(
        "operator-waiting",
        "WARNING",
        "The API server does not answer yet, or the definitions are not installed. The operator "
        "tries again every two seconds.",
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
        "A listing has found changes that no watch has reported. They are applied.",
        ("kind", "count"),
    ),
    LogEvent(
        "watch-retried",
        "WARNING",
        "A request of a watch failed. It is tried again. A watch that does not begin for ten "
        "minutes fails the probe `/livez`.",
    ),
    LogEvent(
        "kopf-told",
        "WARNING",
        "Another message of kopf, which watches the API server; `--log-level DEBUG` shows all of "
        "them.",
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
        "A custom resource definition is absent or being deleted. Its objects are kept as last "
        "seen.",
        ("kind",),
    ),
    LogEvent(
        "definition-back",
        "INFO",
        "A custom resource definition is back. Objects that are still missing after five minutes "
        "count as deleted.",
        ("kind",),
    ),
    LogEvent(
        "token-key-failed",
        "WARNING",
        "The Secret with the key of deliverers' tokens cannot be read or created. Nothing is "
        "reconciled until then.",
    ),
    # Reconciling
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
        "A failed reconcile could not be written to the status of the object. It is tried again "
        "with the reconcile.",
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
        "Somebody has changed or deleted an object of the operator. It is restored.",
        ("kind", "times"),
    ),
    LogEvent(
        "poke-failed",
        "WARNING",
        "A pod could not be annotated. Its kubelet refreshes the configuration later.",
        ("namespace", "pod"),
    ),
    LogEvent(
        "deliverer-lost-pending",
        "WARNING",
        "A deliverer has ended together with its volume, with pending indications. `exact`: their "
        "number is the deliverer's own at its end, not the last one that the operator has read.",
        ("namespace", "service", "pod", "pending", "exact"),
    ),
    LogEvent(
        "adoption-round-failed",
        "WARNING",
        "The API server could not list the pods of a namespace, so it is not proven which pods are "
        "gone. No journal is adopted; it is tried again.",
    ),
    LogEvent(
        "copies-unlisted",
        "WARNING",
        "A gateway with `journalCopies` refuses to list its copies, such as one whose image is of "
        "an earlier version. The message has its reason. Sessions that only it has are not "
        "adopted. Logged once for each reason.",
        ("namespace", "service"),
    ),
    LogEvent("event-dropped", "INFO", "A Kubernetes Event could not be published."),
    # The console
    LogEvent(
        "console-action",
        "INFO",
        "Somebody used a button of the console: who, which, and at which destination.",
        ("user", "action", "destination"),
    ),
    LogEvent(
        "console-review-failed",
        "WARNING",
        "The API server does not answer a TokenReview or SubjectAccessReview, or refuses it: the "
        "operator needs the right to create them. The console answers 503.",
    ),
    # Injection
    LogEvent(
        "bad-review",
        "WARNING",
        "A request to the webhook is no valid review. The answer was 400.",
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
    LogEvent("certificate-renewed", "INFO", "The webhook's CA or certificate was renewed."),
    LogEvent(
        "certificate-failed",
        "WARNING",
        "The webhook's certificate could not be read, renewed or loaded. It is tried again.",
    ),
    LogEvent(
        "certificate-unattended",
        "WARNING",
        "For a minute this replica has had no certificate that the API server trusts, and the "
        "leader has made none: it may run with other values of the chart. This replica makes the "
        "certificate and writes caBundle without leading.",
    ),
    LogEvent(
        "bad-certificate",
        "WARNING",
        "The Secret with the webhook's certificate has no valid content. The leader makes a new "
        "one.",
    ),
    LogEvent(
        "validation-untrusted",
        "INFO",
        "caBundle of the ValidatingWebhookConfiguration could not be read or written. Resources "
        "are not validated when they are applied; conditions show problems. It is tried again.",
    ),
    LogEvent(
        "no-webhook-configuration",
        "WARNING",
        "The MutatingWebhookConfiguration does not exist, so the API server does not call the "
        "webhook and nothing is injected.",
    ),
    # Gateways
    LogEvent(
        "gateway-authority-changed",
        "INFO",
        "The authority of gateways is in use, at the start of a leader or after a renewal.",
    ),
    LogEvent(
        "gateway-authority-replaced",
        "WARNING",
        "Somebody has deleted the Secret with the authority of gateways. Another authority "
        "replaces it.",
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
        "The authority of gateways could not be read, renewed or taken from the named Secret. "
        "Gateways keep their certificates; it is tried again.",
    ),
    LogEvent(
        "bad-gateway-authority",
        "WARNING",
        "The Secret with the authority of gateways has no valid content. It is written anew.",
    ),
    LogEvent(
        "token-keys-failed",
        "WARNING",
        "The API server did not return the keys that verify service-account tokens. Gateways keep "
        "the current ones; it is tried again.",
    ),
)
