"""What to do about the cause of a failed attempt."""

from pillion_sidecar.delivery.handler import FailureCause

_REMEDIES = {
    FailureCause.REFUSED: "nothing listens there: start the listener, or correct host and port",
    FailureCause.DNS: "correct the host name, or the name server of the deliverer",
    FailureCause.UNREACHABLE: "no route leads there: see to the network and its policies",
    FailureCause.TLS: "see that the listener speaks TLS at that port, and which versions",
    FailureCause.CERTIFICATE: "renew the certificate, or name its authority in tls.caSecretRef",
    FailureCause.TIMEOUT: "the listener does not answer: look at it, or raise timeoutSeconds",
    FailureCause.RESET: "the listener ends connections: read its log, and see to proxies between",
    FailureCause.STATUS: "the listener refuses: read its log, and check path and protocol",
    FailureCause.CIM_ERROR: "the listener refuses: read its log",
    FailureCause.CREDENTIALS: "correct the Secret that spec.credentials names",
    FailureCause.ADDRESS: "the deliverer may not connect to this address: name another one",
    FailureCause.DESTINATION: "correct the resource: pillion validate, or kubectl describe",
    FailureCause.INDICATION: "the protocol cannot carry the indication",
    FailureCause.DELIVERER: "read the log of the deliverer",
}


def remedy(cause: str | None) -> str:
    """Return what to do; empty for no cause, or one of a later version."""
    known = [one for one in _REMEDIES if one == cause]
    return _REMEDIES[known[0]] if known else ""
