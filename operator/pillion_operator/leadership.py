"""Elects one leader among the replicas by a Lease. The API server's optimistic concurrency decides.
A replica judges the holder by its own monotonic clock, from when it last *saw* the Lease change:
clocks are never compared, and times in the Lease are for people."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from pillion_operator.clock import Clock, within
from pillion_operator.cluster.api import FAILURES, Api, Conflict, NotFound
from pillion_operator.cluster.types import LEASE, Object

logger = logging.getLogger("pillion.leadership")


class LeadershipLost(Exception):
    """The Lease is another's or was given up. Requests may still be in flight, so the process must
    end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """In seconds. Each is well below the one above it, or two might lead."""

    #: How long an unchanged Lease is respected.
    lease: float = 15.0
    #: How long a leader that cannot renew continues to write.
    renew_deadline: float = 10.0
    #: Between two attempts to acquire or renew.
    retry: float = 2.0
    #: Maximum share by which the wait to acquire is randomly longer.
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not self.lease > self.renew_deadline > self.retry * (1 + self.jitter) > 0:
            raise ValueError(
                f"lease {self.lease}, renew_deadline {self.renew_deadline}, retry {self.retry}: "
                "the lease has to outlast the deadline, and the deadline several retries"
            )


class Leadership:
    """This process's claim to lead: ``acquire``, ``hold`` while it leads, ``release``."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        random: Callable[[], float],
        leads: Callable[[bool], None],
        times: LeaseTimes | None = None,
    ) -> None:
        """``identity`` is unique to this process, also after a restart. ``random`` returns a
        number from 0 to 1. ``leads`` is called when this process begins and ceases to lead."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._random = random
        self._leads = leads
        self._times = times or LeaseTimes()
        #: The version of the Lease that was last seen, and since when, by the own clock.
        self._seen: tuple[str, float] | None = None
        #: The Lease as this process last wrote it; None while it does not lead.
        self._held: Object | None = None
        #: When the last successful renewal began.
        self._renewed = 0.0

    @property
    def leading(self) -> bool:
        """Whether this process may write: it has the Lease, and has renewed it in time."""
        return self._held is not None and self._left() > 0

    async def acquire(self) -> None:
        while not await self._attempt():
            await self._clock.sleep(self._times.retry * (1 + self._times.jitter * self._random()))
        logger.info("this replica leads", extra={"event": "leadership-acquired"})
        self._leads(True)

    async def hold(self) -> NoReturn:
        """Renew the Lease until another has it; then raise LeadershipLost.

        A leader that cannot renew in time writes nothing until it has, which succeeds only while no
        other has taken the Lease.
        """
        led = True
        try:
            while True:
                left = self._left()
                await self._clock.sleep(min(self._times.retry, left if left > 0 else math.inf))
                led = self._told(led)
                await self._renew()
                led = self._told(led)
        finally:
            if led:
                self._leads(False)

    def _told(self, led: bool) -> bool:
        """Call ``leads`` after a change from ``led``; return whether it leads."""
        if self.leading == led:
            return led
        if led:
            logger.warning(
                "the Lease %s/%s could not be renewed in time: writing nothing until it is renewed",
                self._namespace,
                self._name,
                extra={"event": "leadership-paused"},
            )
        else:
            logger.info("this replica leads again", extra={"event": "leadership-resumed"})
        self._leads(not led)
        return not led

    async def release(self) -> None:
        """Give the Lease back, so that another replica leads at once. Only after all writers have
        stopped."""
        held, self._held = self._held, None
        if held is None:
            return
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
        try:
            await within(self._clock, self._times.retry, self._change(held, freed))
        except LeadershipLost:
            return
        except FAILURES as error:
            self._warn("could not be released and has to expire", error)

    async def _attempt(self) -> bool:
        began = self._clock.monotonic()
        try:
            held = await within(self._clock, self._times.renew_deadline, self._claim())
        except Conflict:
            return False  # Another replica was quicker.
        except FAILURES as error:
            self._warn("cannot be acquired", error)
            return False
        self._held, self._renewed = held, began
        return held is not None

    async def _claim(self) -> Object | None:
        """The Lease as this process has written it; None while another has it."""
        lease = await self._api.get(LEASE, self._namespace, self._name)
        if not self._free(lease):
            return None
        if lease is None:
            return await self._api.create(self._first())
        spec = {**(lease.get("spec") or {}), **self._claimed()}
        if (lease.get("spec") or {}).get("holderIdentity") != self._identity:
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        return await self._api.replace({**lease, "spec": spec})

    def _free(self, lease: Object | None) -> bool:
        """Whether the Lease may be taken. One that was deleted may still have a leader."""
        now = self._clock.monotonic()
        version = "" if lease is None else lease["metadata"]["resourceVersion"]
        first = self._seen is None
        if self._seen is None or self._seen[0] != version:
            self._seen = version, now
        if lease is None and first:
            return True
        spec = (lease or {}).get("spec") or {}
        if lease is not None and spec.get("holderIdentity") in (None, "", self._identity):
            return True
        # The holder's value counts: another version may take longer to give up.
        respected = max(self._times.lease, float(spec.get("leaseDurationSeconds") or 0))
        return now - self._seen[1] >= respected

    async def _renew(self) -> None:
        began = self._clock.monotonic()
        left = self._left()
        assert self._held is not None
        renewal = self._change(self._held, {"renewTime": self._now()}, anew=True)
        try:
            self._held = await within(
                self._clock, left if left > 0 else self._times.renew_deadline, renewal
            )
        except FAILURES as error:
            self._warn("was not renewed", error)
            return
        # The API server may have written it as early as the request's start.
        self._renewed = began

    async def _change(self, held: Object, changes: Object, *, anew: bool = False) -> Object:
        """Write fields of the Lease that this process has; ``anew``: also one that is gone."""
        try:
            return await self._api.replace({**held, "spec": {**held["spec"], **changes}})
        except (Conflict, NotFound):
            # Somebody has added a label, or an answer got lost. Or it is no longer ours.
            found = await self._api.get(LEASE, self._namespace, self._name)
        holder = ((found or {}).get("spec") or {}).get("holderIdentity")
        if found is None and anew and self._left() > 0:
            # Nobody else may have it yet: a standby that knew it waits for its time.
            return await self._api.create(self._first())
        if found is None or holder != self._identity:
            # Never released after this: it may be another's by now.
            self._held = None
            why = f"it is held by {holder or 'nobody'}"
            raise LeadershipLost(f"the Lease {self._namespace}/{self._name}: {why}")
        return await self._api.replace({**found, "spec": {**found["spec"], **changes}})

    def _left(self) -> float:
        return self._renewed + self._times.renew_deadline - self._clock.monotonic()

    def _warn(self, what: str, error: Exception) -> None:
        logger.warning(
            "the Lease %s/%s %s: %s",
            self._namespace,
            self._name,
            what,
            str(error) or type(error).__name__,
            extra={"event": "leadership-failure"},
        )

    def _first(self) -> dict[str, Any]:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": {**self._claimed(), "leaseTransitions": 0},
        }

    def _claimed(self) -> dict[str, Any]:
        now = self._now()
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.lease)),
            "acquireTime": now,
            "renewTime": now,
        }

    def _now(self) -> str:
        moment = datetime.fromtimestamp(self._clock.time(), UTC)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
