"""What a build is given of pip's configuration, as secrets."""

from pathlib import Path

import pytest

from pillion_testbed import package_index


def test_the_later_of_two_settings_wins() -> None:
    listed = "global.timeout='60'\n:env:.timeout='180'\nglobal.index-url='http://u:p@host/simple'\n"
    assert package_index.pip_settings(listed) == {
        "timeout": "180",
        "index-url": "http://u:p@host/simple",
    }


def test_a_build_gets_the_way_to_the_index_and_nothing_else() -> None:
    settings = {
        "index-url": "http://u:p@host/simple",
        "extra-index-url": "http://a\\nhttp://b",
        "find-links": "/opt/wheels",
        "cert": "/home/me/ca.pem",
    }
    assert package_index.pip_configuration(settings, authorities=True) == (
        "[global]\n"
        "index-url = http://u:p@host/simple\n"
        "extra-index-url = http://a\n"
        "  http://b\n"
        "cert = /run/secrets/ca.pem\n"
    )
    assert "cert" not in package_index.pip_configuration(settings, authorities=False)


def test_the_secrets_are_for_their_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("PEM")
    monkeypatch.setenv("PIP_CERT", str(authorities))
    monkeypatch.setenv("PIP_INDEX_URL", "http://u:p@host/simple")
    found = package_index.secrets(tmp_path, {})
    assert found["ca.pem"] == authorities
    assert found["pip.conf"].stat().st_mode & 0o777 == 0o600
    assert "index-url = http://u:p@host/simple" in found["pip.conf"].read_text()
