from typing import Any

from pillion_operator.store import MOST_GONE, Change, Key, Store, slimmed

KEY = Key("Secret", "shop", "token")


def body(version: int, *, uid: str = "one", name: str = "token") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
        },
    }


def told(store: Store) -> list[Change]:
    changes: list[Change] = []
    store.subscribe(changes.append)
    return changes


def test_yesterdays_news_are_none() -> None:
    store = Store()
    changes = told(store)
    assert store.put(body(5))
    assert not store.put(body(5))
    assert not store.put(body(4))
    assert not store.put(body(4, uid="earlier"))
    assert store.put(body(9, uid="later"))
    assert [(change.before is None, change.after is None) for change in changes] == [
        (True, False),
        (False, False),
    ]


def test_an_end_that_is_older_than_what_stands_there_is_none() -> None:
    store = Store()
    store.put(body(5))
    assert not store.remove(KEY, version=4)
    assert store.remove(KEY, version=6)
    assert not store.remove(KEY, version=6)
    assert store.get(KEY) is None
    assert store.all("Secret", "shop") == {}
    assert store.namespaces("Secret") == []


def test_the_answer_to_a_write_that_comes_after_the_end_raises_nobody_from_the_dead() -> None:
    store = Store()
    store.put(body(5))
    store.remove(KEY, version=7)
    assert not store.put(body(6))
    assert store.get(KEY) is None
    # A label that is taken off and put on again ends and begins the same object.
    assert store.put(body(8))
    assert store.get(KEY) == body(8)


def test_what_is_gone_is_not_remembered_for_ever() -> None:
    store = Store()
    for number in range(MOST_GONE + 10):
        name = f"token-{number}"
        store.put(body(number + 1, uid=name, name=name))
        store.remove(Key("Secret", "shop", name))
    assert len(store._gone) == MOST_GONE
    assert store._objects == {}


def test_a_listing_sets_right_what_no_watch_has_touched_meanwhile() -> None:
    store = Store()
    for name in ("same", "missed", "deleted"):
        store.put(body(1, uid=name, name=name))
    store.begin_listing()
    store.put(body(8, uid="new", name="new"))
    store.remove(Key("Secret", "shop", "same"), version=9)
    listed = [body(1, uid="same", name="same"), body(3, uid="missed", name="missed")]
    wrong = store.reconcile_listing("Secret", None, listed)
    assert {key.name for key in wrong} == {"missed", "deleted"}
    assert {key.name for key in store.keys("Secret")} == {"missed", "new"}


def test_a_listing_of_some_namespaces_says_nothing_of_others() -> None:
    store = Store()
    store.put(body(1))
    store.begin_listing()
    assert store.reconcile_listing("Secret", ["other"], []) == []
    assert store.get(KEY) is not None


def test_of_a_pod_what_nobody_reads_is_not_kept() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a", "managedFields": [1]},
        "spec": {"containers": [1], "serviceAccountName": "web"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"name": "app"}]},
    }
    assert slimmed(pod) == {
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"serviceAccountName": "web"},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }
