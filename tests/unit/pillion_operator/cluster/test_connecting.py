"""The way to the API server where there is none."""

import logging
from pathlib import Path

import pytest

from pillion_operator.cluster.connecting import connect


@pytest.mark.parametrize("by", ["option", "variable", "home"])
async def test_a_kubeconfig_that_is_not_there_is_named_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    by: str,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    missing = tmp_path / "missing"
    if by == "variable":
        monkeypatch.setenv("KUBECONFIG", f"{missing}:{missing}2")
    named = {"option": "missing", "variable": "missing2", "home": "~/.kube/config"}[by]
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ValueError, match=rf"there is no kubeconfig .*{named}; name one"),
    ):
        await connect(missing if by == "option" else None, context=None)
    assert not caplog.records
