"""What a publisher is told: ``ack=delivered``, receipts, and the flush barrier, the whole way."""

import asyncio
from pathlib import Path

from support.listening import Listening, listening
from support.running import Answer, Running, alert, alerts, listener, resources, running


async def waiting_for(run: Running, ops: Listening, count: int = 1) -> None:
    """Wait until the listener has failed and the publisher waits."""
    await run.failed("ops", 1)
    assert ops.identifiers == []
    assert run.deliverer.delivery.pending == count


async def test_delivered_is_answered_when_the_listener_is_back(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            publishing = asyncio.create_task(
                run.publish(*alerts(0, 3), ack="delivered", timeout="100")
            )
            await waiting_for(run, ops, 3)
            run.retry("ops")
            await run.failed("ops", 2)
            assert not publishing.done()
            ops.behave()
            run.retry("ops")
            answer = await publishing
        assert answer.status == 200
        assert answer.document == {
            "accepted": 3,
            "duplicate": 0,
            "refused": [],
            "delivered": 3,
            "discarded": [],
            "pending": 0,
        }
        assert ops.identifiers == ["0", "1", "2"]


async def test_a_wait_that_is_too_short_leaves_a_receipt_to_ask_again_with(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        async with running(tmp_path, *documents) as run:
            publishing = asyncio.create_task(
                run.publish(*alerts(0, 2), ack="delivered", timeout="5")
            )
            await waiting_for(run, ops, 2)
            run.time.advance(5.0)
            answer = await publishing
            assert (answer.status, answer.document["pending"]) == (202, 2)
            receipt = f"/v1/receipts/{answer.document['receipt']}?timeout="
            # Asked again too early, and for no longer than now.
            again = await run.get(f"{receipt}0")
            assert (again.status, again.document["pending"]) == (202, 2)
            asking = await run.begun(run.get(f"{receipt}300"))
            ops.behave()
            run.retry("ops")
            told = await asking
            assert told.status == 200
            assert told.document == {"delivered": 2, "discarded": [], "pending": 0}
            assert (await run.get(f"{receipt}0")).document == told.document


async def test_a_discarded_target_ends_the_wait_and_is_named(tmp_path: Path) -> None:
    async with listening() as good, listening(status=500) as bad:
        documents = resources(
            listener("good", good.url), listener("bad", bad.url, retry={"attempts": 1})
        )
        async with running(tmp_path, *documents) as run:
            publishing = asyncio.create_task(
                run.publish(*alerts(0, 1), ack="delivered", timeout="3600")
            )
            await run.failed("bad", 1)
            run.retry("bad")
            answer = await publishing
        assert answer.status == 200
        discarded = [{"line": 0, "destination": "bad", "reason": "attempts-exceeded"}]
        assert answer.document["discarded"] == discarded
        assert (answer.document["delivered"], answer.document["pending"]) == (0, 0)
        assert good.identifiers == ["0"]


async def test_a_duplicate_waits_for_its_original_and_is_not_delivered_again(
    tmp_path: Path,
) -> None:
    async with listening(status=503) as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            await run.publish(*alerts(0, 1))
            await waiting_for(run, ops)
            repeating = asyncio.create_task(
                run.publish(*alerts(0, 2), ack="delivered", timeout="3600")
            )
            await run.until(lambda: run.deliverer.delivery.pending == 2)
            assert not repeating.done()
            ops.behave()
            run.retry("ops")
            answer = await repeating
            assert (answer.document["accepted"], answer.document["duplicate"]) == (1, 1)
            assert (answer.document["delivered"], answer.document["pending"]) == (2, 0)
            # Long delivered: said at once.
            late = await run.publish(*alerts(0, 1), ack="delivered")
            assert (late.document["duplicate"], late.document["delivered"]) == (1, 1)
        assert ops.identifiers == ["0", "1"]


async def test_a_duplicate_of_what_was_discarded_is_told_so(tmp_path: Path) -> None:
    async with listening(status=500) as ops, listening() as other:
        listeners = listener("ops", ops.url), listener("other", other.url)
        documents = resources(*listeners, deliveryRetryAttempts=0)
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 1))
            await run.settled()
            # One of the two has it.
            answer = await run.publish(*alerts(0, 1), ack="delivered")
            assert answer.document["duplicate"] == 1
            discarded = [{"line": 0, "destination": "ops", "reason": "attempts-exceeded"}]
            assert answer.document["discarded"] == discarded


async def test_what_was_discarded_everywhere_is_delivered_when_it_comes_again(
    tmp_path: Path,
) -> None:
    async with listening(status=500) as ops:
        documents = resources(listener("ops", ops.url), deliveryRetryAttempts=0)
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 1))
            await run.settled()
            ops.behave()
            answer = await run.publish(*alerts(0, 1), ack="delivered")
            assert (answer.document["duplicate"], answer.document["delivered"]) == (0, 1)
        assert ops.identifiers == ["0"]


async def test_a_source_makes_two_of_one_identifier(tmp_path: Path) -> None:
    async with listening() as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            await run.publish(alert("a"), source="one")
            other = await run.publish(alert("a"), source="two")
            repeat = await run.publish(alert("a"), source="one")
            assert (other.document["accepted"], repeat.document["duplicate"]) == (1, 1)
            await run.settled()
        assert ops.identifiers == ["a", "a"]


async def test_a_removed_destination_ends_the_wait_and_is_named(tmp_path: Path) -> None:
    async with listening() as good, listening(hang=True) as gone:
        to_good = listener("good", good.url)
        both = resources(to_good, listener("gone", gone.url))
        async with running(tmp_path, *both) as run:
            publishing = asyncio.create_task(
                run.publish(*alerts(0, 2), ack="delivered", timeout="3600")
            )
            await gone.treated_badly()
            await run.delivered("good", 2)
            await run.reload(*resources(to_good))
            answer = await publishing
        assert answer.document["discarded"] == [
            {"line": line, "destination": "gone", "reason": "destination-removed"}
            for line in (0, 1)
        ]
        assert answer.document["pending"] == 0


async def test_what_is_wrong_is_refused_and_the_rest_is_waited_for(tmp_path: Path) -> None:
    async with listening() as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            wrong = alert("1", AlertType="not a number")
            answer = await run.publish(alert("0"), wrong, alert("2"), ack="delivered")
            assert answer.status == 207
            (refused,) = answer.document["refused"]
            assert (refused["line"], refused["status"]) == (1, 400)
            assert "AlertType" in refused["reason"] + refused.get("field", "")
            assert answer.document["delivered"] == 2
        assert ops.identifiers == ["0", "2"]


async def test_the_service_may_ask_for_delivered_where_a_publisher_does_not_say(
    tmp_path: Path,
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), acknowledgement="Delivered")
        async with running(tmp_path, *documents) as run:
            publishing = asyncio.create_task(run.publish(*alerts(0, 1), timeout="3600"))
            await waiting_for(run, ops)
            assert (await run.publish(*alerts(1, 1), ack="accepted")).status == 200
            assert not publishing.done()
            ops.behave()
            run.retry("ops")
            assert (await publishing).document["delivered"] == 1


async def test_a_level_that_this_deliverer_cannot_give_is_refused(tmp_path: Path) -> None:
    async with listening() as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            for level in ("durable", "stable", "certain"):
                answer = await run.publish(*alerts(0, 1), ack=level)
                assert answer.status == 400
                assert level in answer.document["reason"]
                assert "accepted or delivered" in answer.document["reason"]
            assert run.deliverer.delivery.pending == 0
        assert ops.identifiers == []


async def test_a_flush_waits_for_its_publishers_own_and_tells_their_fate(
    tmp_path: Path,
) -> None:
    async with listening(status=503) as ops, listening() as other:
        documents = resources(listener("ops", ops.url), listener("other", other.url))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 2), publisher="task-1")
            await run.publish(*alerts(2, 1), publisher="task-2")
            await run.failed("ops", 1)
            await run.delivered("other", 3)
            flushing = await run.begun(flush(run, "task-1", seconds=10))
            run.time.advance(10.0)
            early = await flushing
            assert early.status == 202
            assert early.document == {
                "complete": False,
                "accepted": 2,
                "instance": early.document["instance"],
                "since": early.document["since"],
                "destinations": {
                    "ops": {"delivered": 0, "discarded": {}, "pending": 2},
                    "other": {"delivered": 2, "discarded": {}, "pending": 0},
                },
            }
            flushing = await run.begun(flush(run, "task-1", seconds=3600))
            ops.behave()
            run.retry("ops")
            done = await flushing
            assert (done.status, done.document["complete"]) == (200, True)
            assert done.document["destinations"]["ops"]["delivered"] == 2


async def flush(run: Running, publisher: str, *, seconds: int) -> Answer:
    return await run.post(f"/v1/flush?publisher={publisher}&level=delivered&timeout={seconds}")


async def test_a_flush_waits_for_the_originals_of_duplicates(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            await run.publish(*alerts(0, 2), publisher="attempt-0")
            await waiting_for(run, ops, 2)
            again = await run.publish(*alerts(0, 2), publisher="attempt-1")
            assert again.document["duplicate"] == 2
            assert (await flush(run, "attempt-1", seconds=0)).status == 202
            flushing = await run.begun(flush(run, "attempt-1", seconds=3600))
            ops.behave()
            run.retry("ops")
            assert (await flushing).status == 200
        assert ops.identifiers == ["0", "1"]


async def test_a_flush_of_somebody_unknown_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, *resources(listener("ops", "http://127.0.0.1:9/"))) as run:
        assert (await flush(run, "nobody", seconds=0)).status == 404


async def test_a_publisher_who_goes_away_while_waiting_costs_nothing(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            publishing = asyncio.create_task(
                run.publish(*alerts(0, 1), ack="delivered", timeout="3600")
            )
            await waiting_for(run, ops)
            publishing.cancel()
            ops.behave()
            run.retry("ops")
            await run.settled()
            assert (await run.publish(*alerts(1, 1), ack="delivered")).status == 200
        assert ops.identifiers == ["0", "1"]


async def test_what_nobody_has_subscribed_to_is_said_to_have_had_no_target(tmp_path: Path) -> None:
    nobodys = {"class": "CIM_InstRead", "properties": {"IndicationIdentifier": "1"}}
    nobodys["properties"]["SourceInstance"] = {"class": "X", "properties": {}}
    async with listening() as ops, running(tmp_path, *resources(listener("ops", ops.url))) as run:
        answer = await run.publish(alert("0"), nobodys, ack="delivered")
        assert (answer.document["delivered"], answer.document["unrouted"]) == (1, 1)
        assert ops.identifiers == ["0"]
