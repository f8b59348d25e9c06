"""A destination queue and its parts change by their own verbs: no other file assigns to them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.house import ROOT

SIDECAR = ROOT / "sidecar/pillion_sidecar"
#: The owners, with what others call them.
OWNERS = {
    "queue": SIDECAR / "delivery/queue.py",
    "fullest": SIDECAR / "delivery/queue.py",
    "health": SIDECAR / "delivery/health.py",
    "pauses": SIDECAR / "delivery/health.py",
    "statistics": SIDECAR / "delivery/health.py",
    "sequence": SIDECAR / "delivery/sequence.py",
}


def _targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
        case _:
            return []


def _written(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """The owner, the attribute and the line of each assignment to another object's attribute."""
    for node in ast.walk(tree):
        for target in [part for one in _targets(node) for part in ast.walk(one)]:
            match target:
                case ast.Attribute(
                    value=ast.Name(id=owner) | ast.Attribute(attr=owner),
                    attr=attribute,
                    ctx=ast.Store() | ast.Del(),
                ):
                    yield owner, attribute, target.lineno


def assigned_elsewhere(path: Path, text: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {owner}.{attribute}"
        for owner, attribute, line in _written(ast.parse(text))
        if owner in OWNERS and OWNERS[owner] != path
    ]


def test_no_other_file_assigns_to_a_queues_attributes() -> None:
    found = [
        wrong
        for path in sorted(SIDECAR.rglob("*.py"))
        # What the journal calls a queue is a record.
        if SIDECAR / "journal" not in path.parents
        for wrong in assigned_elsewhere(path, path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "queue.reserved += 1",
        "self._queue, queue.listener_id = None, ''",
        "course.queue.draining = True",
        "queue.health.hold = None",
        "del queue.statistics.delivered",
    ],
)
def test_an_assignment_from_elsewhere_is_noticed(text: str) -> None:
    assert len(assigned_elsewhere(SIDECAR / "app.py", text)) == 1
