"""What to do about the cause of a failed attempt."""

from pillion_sidecar.delivery.handler import FailureCause

_REMEDIES = {
    FailureCause.REFUSED: "no listener at this port: start the listener, or correct host and port",
    FailureCause.DNS: "correct the host name, or the name server of the deliverer",
    FailureCause.UNREACHABLE: "there is no route: check the network and its NetworkPolicies",
    FailureCause.TLS: "check that the listener uses TLS at this port, and which versions",
    FailureCause.CERTIFICATE: "renew the certificate, or name its authority in tls.caSecretRef",
    FailureCause.TIMEOUT: "the listener does not answer: check it, or raise timeoutSeconds",
    FailureCause.RESET: "the listener, or a proxy before it, ends connections: read their logs",
    FailureCause.STATUS: "the listener answers with an error: check its log, path and protocol",
    FailureCause.CIM_ERROR: "the listener answers with an error: read its log",
    FailureCause.CREDENTIALS: "correct the Secret that spec.credentials names",
    FailureCause.ADDRESS: "the deliverer may not connect to this address: name another one",
    FailureCause.DESTINATION: "correct the resource: pillion validate or kubectl describe says why",
    FailureCause.INDICATION: "its protocol cannot carry it: use another, or skip the indication",
    FailureCause.DELIVERER: "read the log of the deliverer",
}


_OTHER_NAME = "issue the certificate for the host, or write a name that it holds as tls.serverName"
_NO_CREDENTIALS = "the destination has no credentials: add spec.credentials, with a Secret"


def remedy(cause: str | None, detail: str = "", *, has_credentials: bool | None = None) -> str:
    """Return what to do; empty for no cause, or one of a later version."""
    if cause == FailureCause.CERTIFICATE and "subjectAltName" in detail:
        return _OTHER_NAME
    if cause == FailureCause.CREDENTIALS and has_credentials is False:
        return _NO_CREDENTIALS
    known = [one for one in _REMEDIES if one == cause]
    return _REMEDIES[known[0]] if known else ""
