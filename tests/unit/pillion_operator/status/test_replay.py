"""The status of a replay from what deliverers report."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pillion_operator.polling.reports import ReplayReport
from pillion_operator.status.conditions import find_condition
from pillion_operator.status.replay import (
    COUNTS,
    Earlier,
    Part,
    ReplayFacts,
    ReplayVerdict,
    advanced,
    earlier,
    judge_replay,
    kept_verdict,
    refused_verdict,
)
from pillion_sidecar.wire.queues import LARGEST_COUNT

NOW = 1_700_000_000.0
STATES = ("Waiting", "Running", "Suspended", "Complete", "Failed")


def told(state: str = "Running", **more: Any) -> ReplayReport:
    return ReplayReport(name="r", uid="u", state=state, **more)


def part(state: str | None = "Running", pod: str = "a", **more: Any) -> Part:
    return Part(pod=pod, progress=None if state is None else told(state, **more))


def judged(*parts: Part, live: dict[str, Any] | None = None, **facts: Any) -> ReplayVerdict:
    return judge_replay(ReplayFacts(parts=parts, **facts), live=live or {}, now=NOW)


def of(verdict: ReplayVerdict, kind: str) -> tuple[str, str, str]:
    (one,) = (one for one in verdict.conditions if one.type == kind)
    return one.status, one.reason, one.message


def test_the_state_is_that_of_the_liveliest() -> None:
    for states, expected in (
        (("Waiting", "Running"), "Running"),
        (("Waiting", "Complete"), "Waiting"),
        (("Complete", "Running"), "Running"),
        ((None, "Complete"), "Waiting"),
        (("Complete", "Complete"), "Complete"),
        (("Complete", "Failed"), "Failed"),
        (("Failed", "Running"), "Running"),
    ):
        verdict = judged(*(part(state, pod=str(n)) for n, state in enumerate(states)))
        assert verdict.fields["state"] == expected
        assert ("completionTime" in verdict.fields) == (expected in ("Complete", "Failed"))


def test_the_times_are_those_of_the_first_begin_and_the_last_end() -> None:
    verdict = judged(part("Complete", started=NOW - 50), part("Complete", pod="b"))
    assert verdict.fields["startTime"] == "2023-11-14T22:12:30Z"
    assert verdict.fields["completionTime"] == "2023-11-14T22:13:20Z"
    again = judged(part("Complete", started=NOW + 9), live=dict(verdict.fields))
    assert again.fields["startTime"] == verdict.fields["startTime"]
    assert again.fields["completionTime"] == verdict.fields["completionTime"]


def test_it_is_not_complete_while_deliverers_may_yet_become_known_or_must_not_know_it() -> None:
    done = part("Complete")
    assert of(judged(done, over=False), "Complete")[:2] == ("False", "NotFinished")
    why = ("OlderDeliverers", "one is older")
    assert of(judged(done, waits=why), "Complete") == ("False", *why)


def test_what_is_left_out_and_not_covered_is_in_the_message() -> None:
    verdict = judged(
        part("Complete", left_out={"not-kept": 3, "filtered": 1}),
        part(
            "Complete",
            pod="b",
            left_out={"not-kept": 1},
            covers_from=False,
            oldest_outcome_time=NOW,
        ),
    )
    assert verdict.fields["leftOut"] == 5
    assert of(verdict, "Complete")[2] == (
        "2 of 2 deliverers have finished. Left out: 1 filtered, 4 not-kept. Content is kept by "
        "spec.history.bodies of the service. The history of 1 deliverer(s) does not go back to "
        "spec.from: the latest begins at 2023-11-14T22:13:20Z."
    )


def test_what_deliverers_wait_for_is_told_once_and_not_of_finished_ones() -> None:
    full = "the queue is full"
    verdict = judged(
        part(detail=full),
        part(detail=full, pod="b"),
        part("Complete", detail="past", pod="c"),
        Part(pod="d", unreachable=True),
    )
    assert of(verdict, "Complete")[2] == (
        "1 of 4 deliverers have finished. 1 do not answer the operator. Deliverers wait: the queue "
        "is full."
    )


def test_a_failure_outlasts_the_pod_that_told_of_it() -> None:
    verdict = judged(part("Failed", detail="no disk"), part(pod="b"))
    assert of(verdict, "Failed")[:2] == ("True", "DelivererFailed")
    live = {
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in verdict.conditions
        ]
    }
    later = judged(part("Complete", pod="b"), live=live)
    assert of(later, "Failed") == of(verdict, "Failed")
    assert later.fields["state"] == "Failed"
    refused = refused_verdict("no destination", live)
    assert of(refused, "Failed") == of(verdict, "Failed")


def test_a_finished_one_keeps_its_status_and_nothing_of_others() -> None:
    live = {
        "state": "Complete",
        "replayed": 3,
        "observedGeneration": 1,
        "conditions": [
            {"type": "Complete", "status": "True", "reason": "Finished", "message": "m"},
            {"type": "Theirs", "status": "True", "reason": "R", "message": "m"},
        ],
    }
    kept = kept_verdict(live)
    assert kept.fields == {"state": "Complete", "replayed": 3}
    assert [one.type for one in kept.conditions] == ["Complete"]
    assert find_condition(live["conditions"], "Theirs") is not None


def test_another_leader_counts_what_is_gone() -> None:
    live = {
        **{name: 10 for name in COUNTS},
        "deliverers": 4,
        "finishedDeliverers": 2,
        "goneDeliverers": 1,
    }
    # One that had finished and one that had not are gone; one of the others has finished.
    found = earlier(live, [part("Complete", selected=4), part(pod="b", selected=1)])
    assert found.counts["selected"] == 5
    assert (found.finished, found.gone) == (1, 1)
    assert earlier({}, [part()]) == Earlier(counts=dict.fromkeys(COUNTS, 0))
    assert earlier({"selected": "many", "deliverers": None}, []).gone == 0


reports = st.builds(
    told,
    state=st.sampled_from(STATES),
    selected=st.integers(0, LARGEST_COUNT),
    replayed=st.integers(0, 9),
    delivered=st.integers(0, 9),
    discarded=st.integers(0, 9),
    left_out=st.dictionaries(
        st.sampled_from(["filtered", "not-kept", "repeated"]), st.integers(0, 9)
    ),
)


@given(st.lists(reports, min_size=1, max_size=6))
def test_counts_never_go_back_and_what_is_finished_stays_so(history: list[ReplayReport]) -> None:
    progress, before = None, dict.fromkeys(COUNTS, 0)
    finished = False
    for one in history:
        progress = advanced(progress, one)
        now = Part(pod="a", progress=progress)
        assert all(now.counts[name] >= before[name] for name in COUNTS)
        assert now.finished >= finished
        finished, before = now.finished, dict(now.counts)


@given(st.lists(reports, max_size=4), st.lists(reports, max_size=4))
def test_a_status_is_within_its_bounds_for_another_leader_too(
    here: list[ReplayReport], gone: list[ReplayReport]
) -> None:
    parts = [Part(pod=f"p{n}", progress=one) for n, one in enumerate(here)]
    lost = [Part(pod=f"g{n}", progress=one) for n, one in enumerate(gone)]
    first = judged(*parts, gone=lost)
    assert all(0 <= first.fields[name] <= LARGEST_COUNT for name in COUNTS)
    of_all = first.fields["deliverers"]
    assert first.fields["finishedDeliverers"] + first.fields["goneDeliverers"] <= of_all
    before = earlier(first.fields, parts)
    second = judged(*parts, before=before, live=dict(first.fields))
    assert second.fields["deliverers"] == of_all
    for name in COUNTS:
        assert second.fields[name] >= first.fields[name]
    assert second.fields["goneDeliverers"] == first.fields["goneDeliverers"]
