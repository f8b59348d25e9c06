"""A deliverer as the operator runs it: it waits for its configuration, and tells how it fares."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from support.listening import listening
from support.resources import destination, service, write, write_rendered
from support.running import ANYWHERE, Running, alerts, listener, resources, running
from support.sidecar import sidecar

AWAITED, REFUSED = "configuration-awaited", "configuration-refused"


async def said(run: Running) -> str:
    """Why it is not ready."""
    answer = await run.ask(run.deliverer.telemetry_url + "/readyz")
    assert answer.status == 503
    return str(answer.document)


async def test_it_answers_503_until_the_first_complete_revision_comes(tmp_path: Path) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        parts = write_rendered(tmp_path, *documents, part_size=200)
        last, content = parts.files[-1]
        (tmp_path / last).unlink()
        async with running(tmp_path, wait_for_configuration=True) as run:
            refused = await run.publish(*alerts(0, 1))
            assert refused.status == 503
            assert int(refused.headers["Retry-After"]) >= 1
            assert [await run.probe(path) for path in ("/livez", "/startupz")] == [200, 200]
            assert "no complete one has come yet" in await said(run)
            assert await run.metric("pillion_configuration_awaited") == 1
            assert (await run.get("/v1/queues")).document["revision"] is None
            before = run.loads
            (tmp_path / last).write_bytes(content)
            await run.reloaded(before)
            assert await run.probe("/readyz") == 200
            assert await run.metric("pillion_configuration_awaited") == 0
            assert (await run.get("/v1/queues")).document["revision"] == parts.revision
            await run.publish(*alerts(0, 2))
            await run.delivered("ops", 2)
        assert ops.identifiers == ["0", "1"]


async def test_nothing_in_the_folder_yet_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, wait_for_configuration=True) as run:
        assert await run.metric("pillion_configuration_reloads_total", outcome="failure") == 0
        before = run.loads
        write_rendered(tmp_path, *resources(destination()))
        await run.reloaded(before)
        assert await run.probe("/readyz") == 200
    levels = {getattr(record, "event", ""): record.levelname for record in caplog.records}
    assert levels.get(AWAITED, "INFO") == "INFO"
    assert "ERROR" not in levels.values()


async def test_a_wrong_first_revision_is_logged_whole_and_counted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = (destination("one", timeoutSeconds=0), destination("two", maxInFlight=0))
    write_rendered(tmp_path, *resources(*wrong))
    async with running(tmp_path, wait_for_configuration=True) as run:
        assert await run.metric("pillion_configuration_reloads_total", outcome="failure") == 1
        assert "the log says why" in await said(run)
        before = run.loads
        write_rendered(tmp_path, *resources(destination()))
        await run.reloaded(before)
        assert await run.probe("/readyz") == 200
        assert await run.metric("pillion_configuration_reloads_total", outcome="failure") == 1
    (record,) = [record for record in caplog.records if getattr(record, "event", "") == REFUSED]
    assert "one" in record.getMessage()
    assert "two" in record.getMessage()


async def test_a_revision_that_loses_a_part_leaves_the_last_one_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = write_rendered(tmp_path, *resources(destination()))
    async with running(tmp_path) as run:
        before = run.loads
        later = write_rendered(tmp_path, *resources(destination(), service("x")), part_size=200)
        (tmp_path / later.files[0][0]).unlink()
        await run.reloaded(before)
        assert await run.probe("/readyz") == 200
        assert (await run.get("/v1/queues")).document["revision"] == first.revision
        assert await run.metric("pillion_configuration_awaited") == 1
        assert await run.metric("pillion_configuration_last_reload_successful") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_without_the_option_a_start_on_nothing_fails(tmp_path: Path) -> None:
    async with sidecar(tmp_path) as stopped:
        assert await stopped.ended() == 1
        assert "no resource files" in "".join(stopped.said)


async def test_sigterm_before_the_first_configuration_ends_with_0(tmp_path: Path) -> None:
    async with sidecar(tmp_path, "--wait-for-configuration") as waiting:
        await waiting.logged(AWAITED)
        waiting.process.send_signal(signal.SIGTERM)
        assert await waiting.ended() == 0


async def test_queues_and_drain_are_where_administration_is_and_not_at_intake(
    tmp_path: Path,
) -> None:
    write(tmp_path, *resources(destination()))
    async with running(tmp_path, administration=ANYWHERE) as run:
        apart, intake = run.deliverer.administration_url, run.deliverer.intake_url
        assert apart != intake
        assert (await run.ask(f"{apart}/v1/queues/ops")).document["name"] == "ops"
        for path in ("/v1/queues", "/v1/queues/ops"):
            assert (await run.ask(intake + path)).status == 404
        for path in ("/drain", "/v1/queues/ops/purge", "/v1/queues/ops/skip"):
            assert (await run.post(path)).status == 404
        assert (await run.ask(f"{apart}/v1/indications")).status == 404


async def test_the_operator_reads_the_queues_at_telemetry_with_its_token(tmp_path: Path) -> None:
    rendered = write_rendered(tmp_path, *resources(destination()))
    token = tmp_path / "operator-token"
    async with running(tmp_path, operator_token_file=token) as run:
        url = run.deliverer.telemetry_url + "/v1/queues"
        assert (await run.ask(url, Authorization="Bearer 0c5f")).status == 401
        token.write_text("0c5f")
        answer = await run.ask(url, Authorization="Bearer 0c5f")
        assert answer.document["revision"] == rendered.revision
        assert [queue["name"] for queue in answer.document["queues"]] == ["ops"]
        assert (await run.ask(url)).status == 401
        assert await run.metric("pillion_operator_requests_refused_total") == 2
        one = run.deliverer.telemetry_url + "/v1/queues/ops"
        assert (await run.ask(one, Authorization="Bearer 0c5f")).status == 404


async def test_without_a_tokens_file_telemetry_has_no_queues(tmp_path: Path) -> None:
    async with running(tmp_path, *resources(destination())) as run:
        assert await run.probe("/v1/queues") == 404


async def test_a_change_of_the_deliverers_block_alone_disturbs_nothing(tmp_path: Path) -> None:
    async with listening() as ops:
        ops_listener = listener("ops", ops.url)
        write_rendered(tmp_path, *resources(ops_listener))
        async with running(tmp_path) as run:
            await run.publish(*alerts(0, 2))
            await run.delivered("ops", 2)
            queue, context = run.queue("ops"), run.queue("ops").sequence_context
            handler = queue.handler
            before = run.loads
            changed = write_rendered(
                tmp_path, *resources(ops_listener, deliverer={"image": "registry.example/p:2"})
            )
            await run.reloaded(before)
            assert (await run.get("/v1/queues")).document["revision"] == changed.revision
            assert run.queue("ops") is queue
            assert (queue.handler, queue.sequence_context) == (handler, context)
            await run.publish(*alerts(2, 1))
            await run.delivered("ops", 3)
        assert ops.identifiers == ["0", "1", "2"]


async def test_a_destination_removed_with_its_subscriptions_drains(tmp_path: Path) -> None:
    async with listening() as ops, listening() as other:
        gone = listener("ops", ops.url, removalPolicy="Drain")
        kept = listener("other", other.url)
        write_rendered(tmp_path, *resources(gone, kept))
        ops.behave(status=503)
        async with running(tmp_path) as run:
            await run.publish(*alerts(0, 2))
            await run.failed("ops", 1)
            before = run.loads
            write_rendered(tmp_path, *resources(kept))
            await run.reloaded(before)
            shown = (await run.get("/v1/queues")).document["queues"]
            assert [(one["name"], one["draining"], one["depth"]) for one in shown] == [
                ("ops", True, 2),
                ("other", False, 0),
            ]
            ops.behave()
            run.retry("ops")
            await run.settled()
            shown = (await run.get("/v1/queues")).document["queues"]
            assert [one["name"] for one in shown] == ["other"]
        assert ops.identifiers[-2:] == ["0", "1"]


async def test_a_subscription_that_ended_by_itself_is_told(tmp_path: Path) -> None:
    documents = resources(destination())
    documents[-1]["spec"]["subscriptionDurationSeconds"] = 60
    documents[-1]["metadata"] |= {"uid": "u-1", "creationTimestamp": "2020-01-01T00:00:00Z"}
    write_rendered(tmp_path, *documents)
    async with running(tmp_path) as run:
        answer = (await run.get("/v1/queues")).document
        assert answer["endedSubscriptions"] == [
            {"name": "alerts-to-ops", "uid": "u-1", "state": "Expired", "reason": "Expired"}
        ]


async def test_pillion_drain_delivers_what_waits_and_says_what_is_left(tmp_path: Path) -> None:
    async with listening() as ops:
        ops.behave(status=503)
        write(tmp_path, *resources(listener("ops", ops.url)))
        async with sidecar(tmp_path, "--administration", "127.0.0.1:0") as run:
            assert (await run.publish(*alerts(0, 1))).status == 200
            await run.logged("delivery-failing")
            assert await drained(run.administration, seconds="0") == (
                3,
                "1 pending\nops: 1 pending; failing: status: HTTP 503\ntry: pillion queues ops\n",
            )
            ops.behave()
            assert await drained(run.administration) == (0, "0 pending\n")
        code, text = await drained(run.administration)
        assert code == 0
        assert "nothing is left to do" in text


async def drained(url: str, seconds: str = "60") -> tuple[int, str]:
    """Run the command as a preStop hook does; its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pillion_cli.main", "drain", "--gone-ok"),
        *("--to", url, "--timeout", seconds),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
