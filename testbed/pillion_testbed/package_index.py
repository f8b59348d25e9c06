"""How pip reaches an index here, for a build that must not keep it: as two files that the build
mounts as secrets, so neither address nor credential gets into a layer or an image's history.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: What of pip's configuration a build gets; ``cert`` becomes the second secret.
PASSED_ON = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
#: Where Dockerfiles mount the authorities.
AUTHORITIES = "/run/secrets/ca.pem"
#: Where a machine keeps the authorities that it trusts, after what the environment names.
SYSTEM_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def pip_settings(listed: str) -> dict[str, str]:
    """The settings in what ``pip config list`` prints; of two, the later one wins."""
    settings = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        settings[key.strip().rpartition(".")[2]] = value.strip().strip("'\"")
    return settings


def pip_configuration(settings: Mapping[str, str], *, authorities: bool) -> str:
    """The pip.conf for a build."""
    lines = [f"{key} = {settings[key]}" for key in PASSED_ON if key in settings]
    if authorities:
        lines.append(f"cert = {AUTHORITIES}")
    # Several values of one setting are lines of their own, and have to be indented.
    return "\n".join(["[global]", *(line.replace("\\n", "\n  ") for line in lines), ""])


def secrets(folder: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """Write the secrets for a build into a folder; returns them by name."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
    settings = pip_settings(listed)
    named = (settings.get("cert"), environment.get("SSL_CERT_FILE"), str(SYSTEM_AUTHORITIES))
    found = next((Path(one) for one in named if one and Path(one).is_file()), None)
    configuration = folder / "pip.conf"
    configuration.touch(mode=0o600)
    configuration.write_text(pip_configuration(settings, authorities=found is not None))
    return {"pip.conf": configuration} | ({"ca.pem": found} if found else {})
