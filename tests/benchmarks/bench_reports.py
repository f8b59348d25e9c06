"""Polling beside reports: what the operator pays for 10,000 deliverers, and when it knows what.

    python tests/benchmarks/bench_reports.py [PART…]

PARTs: ``cost``, ``times``, ``tokens``, ``memory``, ``review``. Reports are a prototype of this file
alone: a deliverer posts the page of its queues with a token of its pod.

``cost``: CPU of the operator's side for one answer with five queues, the median of rounds in turns.
Polling is the operator's own poller and client. A report is read by aiohttp, its token verified by
the gateway's code, and its page read and compared like a polled one; over TLS each comes over a new
connection: a token is to be encrypted, and a heartbeat comes every 300 s. The pods are one process
on loopback, 127.1.0.0/16. Bytes are those inside TCP and TLS.
``times``: 10,000 pods of one namespace in virtual time. The poller is the operator's own, its
client a double that answers after 20 ms. After the start it is a tenth of the pods at a tenth of
the rate, which has the same intervals. Reports are modelled: a heartbeat every 300 s, shortened at
random by up to a fifth, and the operator takes at most 50 changes a second.
``tokens``: one verification, one remembered token. ``memory``: what is kept for 10,000 deliverers.
``review``: a TokenReview at a real API server on this machine, with its CPU.
"""

import asyncio
import base64
import hashlib
import json
import multiprocessing
import random
import ssl
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import trustme
from aiohttp import web

from benchmarks.operator_bed import NAMESPACE, bed
from cluster.measuring import cpu_seconds
from pillion_operator.clock import SystemClock
from pillion_operator.polling.client import DelivererClient
from pillion_operator.polling.poller import Client, Poller
from pillion_operator.polling.reports import (
    Answer,
    DelivererReport,
    QueueReport,
    change,
    report_of,
)
from pillion_operator.polling.schedule import RATE
from pillion_sidecar.auth.tokens import TokenKeys, Verified, parse_keys, verify
from pillion_sidecar.wire.queues import read_page
from pillion_testbed.tiers import API_SERVER
from support.bench import free_port, report
from support.operator_fakes import LoopClock, run_virtually
from support.token_issuer import NOW, TokenIssuer

PARTS = ("cost", "times", "tokens", "memory", "review")
#: Deliverers, those of one round with sockets, rounds, and connections at once.
PODS, SOCKETS, ROUNDS, AT_ONCE = 10_000, 300, 5, 8
QUEUES = 5
#: Seconds between two heartbeats, the share by which they vary, and changes taken a second.
HEARTBEAT, SPREAD, CHANGES = 300.0, 0.2, 50.0
REVIEWS = 300
#: Seconds of virtual time after which polls are spread as they stay.
STEADY = 2000.0

_QUEUE = {
    "protocol": "CIM-XML",
    "suspended": False,
    "depth": 2,
    "capacity": 10_000,
    "highWater": 7,
    "inFlight": 1,
    "oldestIndicationTime": "2026-01-01T00:01:30.000Z",
    "creationTime": "2026-01-01T00:00:00.000Z",
    "delivered": 9,
    "attemptsByResult": {"success": 9, "error": 1},
    "discarded": {},
    "lastAttemptTime": "2026-01-01T00:01:40.000Z",
    "lastSuccessTime": "2026-01-01T00:01:30.000Z",
    "lastResult": {"result": "error", "detail": "HTTP 503", "status": 503},
    "nextAttemptTime": "2026-01-01T00:02:10.000Z",
    "sequenceContext": "0d3f7a50c5c14a0fb1f4fd4a9a0d8d2e",
    "nextSequenceNumber": 3,
}
_NAMES = [f"listener-{number}" for number in range(QUEUES)]
PAGE = json.dumps(
    {
        "revision": "0123456789abcdef",
        "durability": "Disk",
        "schemaLevel": 3,
        "queues": [{"name": name, **_QUEUE} for name in _NAMES],
        "next": None,
        "endedSubscriptions": [],
        "endedSubscriptionsCount": 0,
    }
).encode()


# ------------------------------------------------------------------ the pods' process


@dataclass
class Traffic:
    """Bytes that the pods have taken and given."""

    taken: int = 0
    given: int = 0


def pods_process(pipe: Connection, port: int, authority: bytes) -> None:
    """Answer polls on every address of loopback, and post reports when told to."""
    asyncio.run(_pods(pipe, port, authority))


async def _pods(pipe: Connection, port: int, authority: bytes) -> None:
    traffic = Traffic()

    async def polled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        traffic.taken += len(request)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(PAGE)}"
        answer = head.encode() + b"\r\nConnection: close\r\n\r\n" + PAGE
        traffic.given += len(answer)
        writer.write(answer)
        await writer.drain()
        writer.close()

    trusting = ssl.create_default_context(cadata=authority.decode())

    async def post(port: int, token: str, *, tls: bool) -> None:
        reader, writer = await asyncio.open_connection(
            "localhost" if tls else "127.0.0.1", port, ssl=trusting if tls else None
        )
        head = (
            f"POST /v1/reports HTTP/1.1\r\nHost: operator\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(PAGE)}\r\n"
            "Connection: close\r\n\r\n"
        )
        writer.write(head.encode() + PAGE)
        answer = await reader.read()
        traffic.given += len(head) + len(PAGE)
        traffic.taken += len(answer)
        if not answer.startswith(b"HTTP/1.1 204"):
            raise RuntimeError(answer[:200])
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()

    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(polled, "0.0.0.0", port, backlog=512):
        pipe.send("ready")
        while (order := await loop.run_in_executor(None, pipe.recv)) is not None:
            before = replace(traffic)
            if order[0] == "post":
                _, where, tokens, tls = order
                turns = asyncio.Semaphore(AT_ONCE)
                await asyncio.gather(*(_in_turn(turns, post(where, t, tls=tls)) for t in tokens))
                pipe.send((traffic.taken - before.taken, traffic.given - before.given))
            else:
                pipe.send((traffic.taken, traffic.given))


async def _in_turn(turns: asyncio.Semaphore, work: Awaitable[None]) -> None:
    async with turns:
        await work


# ------------------------------------------------------------------ reports, as they might be


@dataclass
class ReportServer:
    """Takes reports: the token says which pod it is, and its page is kept where it is newer."""

    keys: TokenKeys
    answers: dict[str, DelivererReport] = field(default_factory=dict)
    verified: dict[bytes, tuple[str, Verified]] = field(default_factory=dict)
    changes: int = 0

    def principal(self, token: str) -> str:
        """The uid of the pod to which a token is bound; raises TokenError."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self.verified.get(digest)
        if known is None:
            found = verify(token, self.keys, now=NOW)
            payload = token.split(".")[1]
            claims = json.loads(_base64(payload))
            known = self.verified[digest] = (claims["kubernetes.io"]["pod"]["uid"], found)
        return known[0]

    def take(self, token: str, body: bytes) -> None:
        uid = self.principal(token)
        answer = report_of(uid, [read_page(body)], at=time.time())
        # As the poller does: resources that do not exist are dropped.
        kept = {name: queue for name, queue in answer.queues.items() if name in _NAMES}
        answer = replace(answer, queues=kept)
        self.changes += bool(change(self.answers.get(uid), answer))
        self.answers[uid] = answer

    async def handle(self, request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        self.take(token, await request.read())
        return web.Response(status=204)


def _base64(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@asynccontextmanager
async def serving(server: ReportServer, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    app = web.Application(client_max_size=1 << 20)
    app.router.add_post("/v1/reports", server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def issued() -> tuple[TokenKeys, list[str]]:
    """RS256 keys, and tokens of as many pods, with the claims that Kubernetes puts into one."""
    issuer = TokenIssuer()
    issuer.add("second", "RS256")
    keys = parse_keys(issuer.document(audience="pillion-operator"), name="keys")
    tokens = [
        issuer.token(
            kid="second",
            aud=["pillion-operator"],
            jti="6d3f7a50-c5c1-4a0f-b1f4-fd4a9a0d8d2e",
            **{
                "kubernetes.io": {
                    "namespace": "team",
                    "node": {"name": "node-1", "uid": "2f1b7a50-c5c1-4a0f-b1f4-fd4a9a0d8d2e"},
                    "pod": {"name": f"spark-exec-{number}", "uid": f"uid-{number}"},
                    "serviceaccount": {
                        "name": "spark",
                        "uid": "9a1b7a50-c5c1-4a0f-b1f4-fd4a9a0d8d2e",
                    },
                }
            },
        )
        for number in range(SOCKETS)
    ]
    return keys, tokens


# ------------------------------------------------------------------ polling, as it is


def pod(number: int, *, address: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"spark-exec-{number}", "uid": f"uid-{number}"},
        "status": {
            "phase": "Running",
            "podIP": address,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pods(count: int) -> list[dict[str, Any]]:
    return [
        pod(number, address=f"127.1.{number // 250}.{number % 250 + 1}") for number in range(count)
    ]


def poller_of(
    client: Client,
    *,
    clock: Any,
    polled: Callable[[bool, float], None],
    on_change: Callable[[str, str], None] = lambda namespace, service: None,
    rate: float = RATE,
) -> Poller:
    return Poller(
        client,
        clock=clock,
        token=lambda namespace, service: "0" * 64,
        on_change=on_change,
        known=lambda kind, namespace, name: True,
        polled=polled,
        draw=random.Random(1).random,
        rate=rate,
    )


# ------------------------------------------------------------------ the parts


async def poll_all(port: int) -> float:
    """CPU seconds of polling each pod once."""
    answered: list[bool] = []
    done = asyncio.Event()

    def polled(reachable: bool, seconds: float) -> None:
        answered.append(reachable)
        if len(answered) == SOCKETS:
            done.set()

    async with aclosing(DelivererClient(clock=SystemClock(), port=port)) as client:
        poller = poller_of(client, clock=SystemClock(), polled=polled, rate=1e6)
        poller.pods_changed("team", "default", pods(SOCKETS))
        began = time.process_time()
        task = asyncio.create_task(poller.run())
        await done.wait()
        spent = time.process_time() - began
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    if not all(answered):
        raise RuntimeError("a poll failed")
    return spent


async def measure_cost() -> None:
    keys, tokens = issued()
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    port = free_port()
    ours, theirs = multiprocessing.Pipe()
    arguments = (theirs, port, authority.cert_pem.bytes())
    process = multiprocessing.get_context("spawn").Process(target=pods_process, args=arguments)
    process.start()
    loop = asyncio.get_running_loop()

    async def receive() -> Any:
        return await loop.run_in_executor(None, ours.recv)

    await receive()
    spent: dict[str, list[float]] = {}
    size: dict[str, tuple[int, int]] = {}
    try:
        server = ReportServer(keys)
        async with serving(server, None) as plain, serving(server, context) as secure:
            for _ in range(ROUNDS):
                ours.send(("traffic",))
                before = await receive()
                spent.setdefault("a poll", []).append(await poll_all(port))
                ours.send(("traffic",))
                after = await receive()
                size["a poll"] = (after[0] - before[0], after[1] - before[1])
                server.verified.clear()
                for name, where, tls in (
                    ("a report, its token new", plain, False),
                    ("a report, its token remembered", plain, False),
                    ("a report over TLS, its token remembered", secure, True),
                ):
                    began = time.process_time()
                    ours.send(("post", where, tokens, tls))
                    size[name] = await receive()
                    spent.setdefault(name, []).append(time.process_time() - began)
    finally:
        ours.send(None)
        process.join(5)
    basis = statistics.median(spent["a poll"])
    for name, rounds in spent.items():
        one = statistics.median(rounds)
        spread = f"{min(rounds) / SOCKETS * 1e6:.0f} to {max(rounds) / SOCKETS * 1e6:.0f} µs"
        taken, given = (number / SOCKETS for number in size[name])
        report(
            goal=f"CPU of the operator for {name}",
            figure=f"{one / SOCKETS * 1e6:.0f} µs",
            met=None,
            note=f"{one / basis:.2f} of a poll; {spread}; "
            f"the pod takes {taken:.0f} bytes and gives {given:.0f}",
        )


@dataclass
class Instant:
    """Answers after 20 ms; which pods' queues have failed is told by a set of addresses."""

    failing: set[str] = field(default_factory=set)
    #: When each address was first seen to fail.
    seen: dict[str, float] = field(default_factory=dict)
    all_seen: asyncio.Event = field(default_factory=asyncio.Event)

    async def poll(self, pod: str, *, address: str, token: str) -> Answer:
        await asyncio.sleep(0.02)
        now = asyncio.get_running_loop().time()
        failing = address in self.failing
        if failing:
            self.seen.setdefault(address, now)
            if len(self.seen) == len(self.failing):
                self.all_seen.set()
        queue = QueueReport(name="pager", depth=0, capacity=100, high_water=0, suspended=failing)
        return DelivererReport(pod=pod, revision="one", queues={"pager": queue}, at=now)


async def _restarted(count: int, rate: float, *, steady: float) -> tuple[float, list[float], float]:
    """Seconds until all are known; then, for a change at all pods after ``steady`` seconds, when
    each was seen and when the status was first to be written."""
    client, known, changed = Instant(), asyncio.Event(), list[float]()
    loop = asyncio.get_running_loop()
    polls = 0

    def polled(reachable: bool, seconds: float) -> None:
        nonlocal polls
        polls += 1
        if polls == count:
            known.set()

    poller = poller_of(
        client,
        clock=LoopClock(),
        polled=polled,
        on_change=lambda namespace, service: changed.append(loop.time()),
        rate=rate,
    )
    poller.pods_changed("team", "default", pods(count))
    began = loop.time()
    task = asyncio.create_task(poller.run())
    await known.wait()
    started = loop.time() - began
    await asyncio.sleep(steady)
    at = loop.time()
    client.failing = {one["status"]["podIP"] for one in pods(count)}
    await client.all_seen.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    seen = sorted(moment - at for moment in client.seen.values())
    return started, seen, next(moment - at for moment in changed if moment > at)


def measure_times() -> None:
    started, _, _ = run_virtually(_restarted(PODS, RATE, steady=0.0))
    _, seen, first = run_virtually(_restarted(PODS // 10, RATE / 10, steady=STEADY))
    draw = random.Random(2)
    # Where in its interval each deliverer is when the operator begins anew.
    waits = [HEARTBEAT * (1 - SPREAD * draw.random()) for _ in range(PODS)]
    heard = sorted(wait * draw.random() for wait in waits)
    figures = {
        "polling: all 10,000 known after a restart": f"{started:.0f} s",
        "reports: 95 % of 10,000 known after a restart": f"{heard[PODS * 95 // 100]:.0f} s",
        "reports: all 10,000 known after a restart": f"{heard[-1]:.0f} s",
        "polling: a change at one of them is seen, median": f"{statistics.median(seen):.0f} s",
        "polling: a change at one of them is seen, the last": f"{seen[-1]:.0f} s",
        "polling: a change at all of them is first in the status": f"{first:.2f} s",
        "reports: a change at all of them, the last is taken": f"{PODS / CHANGES:.0f} s",
    }
    for goal, figure in figures.items():
        report(goal=goal, figure=figure, met=None)


def measure_tokens() -> None:
    keys, tokens = issued()
    server = ReportServer(keys)
    for name in ("a token verified (RS256)", "a token remembered"):
        rounds = []
        for _ in range(ROUNDS):
            if "verified" in name:
                server.verified.clear()
            began = time.process_time()
            for token in tokens:
                server.principal(token)
            rounds.append((time.process_time() - began) / len(tokens))
        note = f"{len(tokens[0])} characters"
        figure = f"{statistics.median(rounds) * 1e6:.1f} µs"
        report(goal=name, figure=figure, met=None, note=note)


def measure_memory() -> None:
    """What the poller keeps of its pods beyond their reports, and what reports keep of tokens."""
    keys, tokens = issued()
    found = verify(tokens[0], keys, now=NOW)
    tracemalloc.start()
    targets = pods(PODS)
    poller = poller_of(Instant(), clock=_Still(), polled=lambda reachable, seconds: None)
    middle = tracemalloc.get_traced_memory()[0]
    poller.pods_changed("team", "default", targets)
    polling = tracemalloc.get_traced_memory()[0] - middle
    middle = tracemalloc.get_traced_memory()[0]
    remembered = {
        hashlib.sha256(str(number).encode()).digest(): (f"uid-{number}", replace(found))
        for number in range(PODS)
    }
    reports = tracemalloc.get_traced_memory()[0] - middle
    tracemalloc.stop()
    assert remembered
    for name, size in (
        ("10,000 deliverers, their schedule included", polling),
        ("10,000 remembered tokens", reports),
    ):
        report(goal=name, figure=f"{size / 2**20:.1f} MiB", met=None)


class _Still(SystemClock):
    def monotonic(self) -> float:
        return 0.0


async def measure_review() -> None:
    """TokenReviews one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        async with bed(Path(folder)) as known:
            path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token"
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": ["pillion-operator"], "expirationSeconds": 3600},
            }
            tokens = [
                (await known.client.request("POST", path, request))["status"]["token"]
                for _ in range(REVIEWS)
            ]
            server = known.plane.pids()[API_SERVER]
            cpu, own, began = cpu_seconds(server), time.process_time(), time.monotonic()
            for token in tokens:
                answer = await known.client.request(
                    "POST",
                    "/apis/authentication.k8s.io/v1/tokenreviews",
                    {
                        "apiVersion": "authentication.k8s.io/v1",
                        "kind": "TokenReview",
                        "spec": {"token": token, "audiences": ["pillion-operator"]},
                    },
                )
                if not answer["status"].get("authenticated"):
                    raise RuntimeError(answer)
            seconds = time.monotonic() - began
            own, cpu = time.process_time() - own, cpu_seconds(server) - cpu
    report(
        goal="a TokenReview",
        figure=f"{(own + cpu) / REVIEWS * 1e3:.2f} ms",
        met=None,
        note=f"CPU of the API server {cpu / REVIEWS * 1e3:.2f} ms, of who asks "
        f"{own / REVIEWS * 1e3:.2f} ms; {seconds / REVIEWS * 1e3:.1f} ms until the answer",
    )


def main() -> None:
    parts = sys.argv[1:] or PARTS
    for part in parts:
        if part not in PARTS:
            sys.exit(f"no part {part}: {', '.join(PARTS)}")
    if "cost" in parts:
        asyncio.run(measure_cost())
    if "times" in parts:
        measure_times()
    if "tokens" in parts:
        measure_tokens()
    if "memory" in parts:
        measure_memory()
    if "review" in parts:
        asyncio.run(measure_review())


if __name__ == "__main__":
    main()
