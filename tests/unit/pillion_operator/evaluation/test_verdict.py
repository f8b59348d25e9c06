"""What Accepted says of a resource with something wrong."""

import pytest

from pillion_operator.evaluation.verdict import ACCEPTED, refused
from pillion_sidecar.config.problems import Problem

FIELD = "spec.credentials.bearer.secretRef.name"


def problem(reason: str, *, field: str = "spec.a") -> Problem:
    return Problem(
        reason=reason,
        message="it is odd",
        remedy="Even it.",
        resource="ListenerDestination/d",
        field=field,
        value="'token'",
    )


def test_what_is_accepted_says_so() -> None:
    assert ACCEPTED.accepted
    assert ACCEPTED.reason == "Accepted"


def test_the_first_problem_gives_the_reason_and_all_are_told() -> None:
    verdict = refused([problem("Required"), problem("Invalid", field="spec.b")])
    assert (verdict.accepted, verdict.reason) == (False, "Required")
    assert verdict.message == (
        "spec.a: it is odd (value 'token'). Even it. spec.b: it is odd (value 'token'). Even it."
    )


@pytest.mark.parametrize("reason", ["NotFound", "CredentialsNotPermitted"])
@pytest.mark.parametrize(
    "field",
    [
        FIELD,
        "spec.tls.caSecretRef.name",
        "spec.tls.clientCertificateSecretRef.name",
        "spec.destinationFrom.secretKeyRef.name",
    ],
)
def test_a_secret_that_is_not_there_and_one_that_is_not_labelled_look_alike(
    reason: str, field: str
) -> None:
    verdict = refused([problem(reason, field=field)])
    assert verdict.reason == "CredentialsNotPermitted"
    assert verdict.message == (
        f'{field}: no Secret of this name has the label pillion.dev/credentials: "true", or it '
        "is larger than 384 KiB (value 'token'). Label it if this destination may use it. "
        "The operator reads no other Secret."
    )


def test_what_is_wrong_within_a_secret_is_told_as_it_is() -> None:
    verdict = refused([problem("Invalid", field=FIELD)])
    assert (verdict.reason, verdict.message) == (
        "Invalid",
        f"{FIELD}: it is odd (value 'token'). Even it.",
    )


@pytest.mark.parametrize("reason", ["NotFound", "CredentialsNotPermitted"])
def test_what_is_missing_but_no_secret_is_told_as_it_is(reason: str) -> None:
    verdict = refused([problem(reason, field="spec.filterRef.name")])
    assert verdict.reason == reason
    assert "it is odd" in verdict.message
