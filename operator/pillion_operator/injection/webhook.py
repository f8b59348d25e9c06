"""The webhook: the API server asks it about every pod that is made, and about our resources."""

import json
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from aiohttp import web
from prometheus_client import Counter, Histogram

from pillion_operator.clock import Clock
from pillion_operator.cluster.types import Object
from pillion_operator.injection.decision import Inject, decide
from pillion_operator.injection.patch import (
    ignored_annotations,
    injection_patch,
    port_clashes,
)
from pillion_operator.injection.review import (
    BadReview,
    Review,
    answer,
    answer_change,
    parse_change,
    parse_review,
)
from pillion_operator.settings import DelivererDefaults

#: Of its own: the deliverer's telemetry bounds its lines, since others decide how many there are.
logger = logging.getLogger("pillion.operator.webhook")

#: Bytes of a review. An object in etcd has 1.5 MiB at most, and an answer may double it.
MOST_BYTES = 4 * 1024 * 1024


class Services(Protocol):
    """Where the IndicationServices are known; asked without waiting."""

    def services(self, namespace: str) -> Iterable[Object]:
        """Those of one namespace."""


class Opinion(Protocol):
    """What is said of a resource that is about to be stored."""

    @property
    def refusal(self) -> str:
        """Why it must not be; empty: it may."""

    @property
    def warnings(self) -> Sequence[str]: ...


class Admits(Protocol):
    """Judges resources that are about to be stored; asked without waiting."""

    def of(self, body: Object, *, namespace: str) -> Opinion:
        """The opinion on one of Pillion's own resources."""


class InjectingWebhook:
    """Answers ``POST /mutate`` and ``POST /validate``. It writes nothing, so a dry run is like any
    other review."""

    def __init__(
        self,
        *,
        services: Services,
        defaults: DelivererDefaults,
        operator_namespace: str,
        clock: Clock,
        seconds: Histogram,
        answers: Counter,
        admission: Admits | None = None,
    ) -> None:
        """``answers`` has the label ``outcome``: injected, left or failed. ``admission``
        judges Pillion's own resources; None: nobody does."""
        self._services = services
        self._defaults = defaults
        self._operator_namespace = operator_namespace
        self._clock = clock
        self._seconds = seconds
        self._answers = answers
        self._admission = admission

    def application(self) -> web.Application:
        """The application, also with ``GET /readyz``."""
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post("/mutate", self._mutate)
        if self._admission is not None:
            app.router.add_post("/validate", partial(self._validate, self._admission))
        app.router.add_get("/readyz", _ready)
        return app

    async def _mutate(self, request: web.Request) -> web.Response:
        body = await request.read()
        began = self._clock.monotonic()
        outcome = "failed"
        try:
            review = parse_review(body)
            outcome, answered = self._answer(review)
        except BadReview as error:
            logger.warning("a review is refused: %s", error, extra={"event": "bad-review"})
            return web.Response(status=400, text=f"{error}\n")
        finally:
            self._answers.labels(outcome).inc()
            self._seconds.observe(self._clock.monotonic() - began)
        return web.Response(body=json.dumps(answered).encode(), content_type="application/json")

    async def _validate(self, admission: Admits, request: web.Request) -> web.Response:
        try:
            review = parse_change(await request.read())
        except BadReview as error:
            logger.warning("a review is refused: %s", error, extra={"event": "bad-review"})
            return web.Response(status=400, text=f"{error}\n")
        if review.body is None:
            return web.json_response(answer_change(review))
        opinion = admission.of(review.body, namespace=review.namespace)
        answered = answer_change(review, refusal=opinion.refusal, warnings=opinion.warnings)
        return web.json_response(answered)

    def _answer(self, review: Review) -> tuple[str, Object]:
        if review.pod is None:
            return "left", answer(review)
        decision = decide(
            review.pod,
            namespace=review.namespace,
            services=self._services.services(review.namespace),
            operator_namespace=self._operator_namespace,
        )
        if not isinstance(decision, Inject):
            return "left", answer(review, warnings=decision.warnings)
        patch = injection_patch(
            review.pod,
            namespace=review.namespace,
            decision=decision,
            defaults=self._defaults,
        )
        warnings = (
            *decision.warnings,
            *port_clashes(review.pod),
            *ignored_annotations(review.pod, decision=decision, defaults=self._defaults),
        )
        return "injected", answer(review, patch=patch, warnings=warnings)


async def _ready(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")
