"""The images of the tests, built from the project's own Dockerfiles on a local base.

Each is named after a digest of all that goes into it, so an unchanged one is there at once and a
changed one never hides behind an old name. What is built is kept outside the checkout.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import image_archive
from cluster.binaries import Say, cache_folder, say
from cluster.image_base import DOCKERFILE, base_key, make_base, run
from cluster.package_index import secrets

ROOT = Path(__file__).parents[2]
#: Archives of one image that are kept: of this checkout, and of a few others.
KEPT = 4
#: Intermediate images after which buildah's store is begun anew, for it never forgets one.
STORE_LIMIT = 600
#: The two values that do not belong to an image's identity, as tests have them.
CREATED = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an image is made of: its Dockerfile, and what of the repository that copies."""

    repository: str
    dockerfile: str
    sources: tuple[str, ...]
    #: Another image that it stands on, and the argument of the Dockerfile that names it.
    on: "tuple[str, Recipe] | None" = None

    @property
    def ignorefile(self) -> str:
        return f"{self.dockerfile}.dockerignore"


DELIVERER = Recipe(
    repository="localhost/pillion",
    dockerfile="images/deliverer/Dockerfile",
    sources=(
        "images/build-requirements.txt",
        "images/bytecode.py",
        "images/deliverer",
        "images/prune.py",
        "images/sbom.py",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "cim",
        "cli",
        "operator",
        "sidecar",
        "spark",
    ),
)
SPARK = Recipe(
    repository="localhost/pillion-spark",
    dockerfile="images/spark/Dockerfile",
    sources=(
        "images/build-requirements.txt",
        "images/bytecode.py",
        "images/prune.py",
        "images/sbom.py",
        "images/spark",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "spark",
    ),
)
PYWBEM_LISTENER = Recipe(
    repository="localhost/pywbem-listener",
    dockerfile="tests/images/pywbem-listener/Dockerfile",
    sources=("images/build-requirements.txt", "tests/images/pywbem-listener"),
)
WEATHER = Recipe(
    repository="localhost/pillion-weather",
    dockerfile="examples/spark-on-kubernetes/Dockerfile",
    sources=("examples/spark-on-kubernetes/weather_stream.py", "examples/spark-weather"),
    on=("SPARK", SPARK),
)
RECIPES: dict[str, Recipe] = {
    "deliverer": DELIVERER,
    "spark": SPARK,
    "pywbem-listener": PYWBEM_LISTENER,
    "weather": WEATHER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image: its name with tag, and an uncompressed archive of the OCI's layout."""

    name: str
    archive: Path

    @property
    def repository(self) -> str:
        """The name without tag, as the chart wants it."""
        return self.name.partition(":")[0]

    @property
    def tag(self) -> str:
        return self.name.partition(":")[2]

    def contents(self) -> image_archive.Contents:
        """Its configuration and the digests and sizes of its layers, the base's first."""
        return image_archive.contents(self.archive)

    def thin_archive(self, into: Path, *, having: Container[str]) -> Path:
        """Write an archive without the layers that containerd has (``ctr content list -q``)."""
        image_archive.thin(self.archive, into=into, having=having)
        return into


def deliverer(*, say: Say = say) -> Image:
    """Deliverer, operator and command line."""
    return Images(say=say).image(DELIVERER)


def spark(*, say: Say = say) -> Image:
    """Spark with the data source."""
    return Images(say=say).image(SPARK)


def pywbem_listener(*, say: Say = say) -> Image:
    """pywbem's own listener, and what arrived as JSON over HTTP."""
    return Images(say=say).image(PYWBEM_LISTENER)


def weather(*, say: Say = say) -> Image:
    """Spark with the jobs of ``examples/spark-on-kubernetes`` and a year's weather."""
    return Images(say=say).image(WEATHER)


class Images:
    """Builds images, and keeps them in a folder of this user."""

    def __init__(self, *, say: Say = say, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._folder = cache_folder(environment).parent / "images"
        self._say = say

    def image(self, recipe: Recipe) -> Image:
        """The image, built unless it is there.

        Raises :class:`cluster.image_base.ImagesUnavailable` where it cannot be built here.
        """
        name = f"{recipe.repository}:{digest(recipe, root=ROOT)}"
        archive = self._folder / f"{name.rpartition('/')[2].replace(':', '-')}.tar"
        self._folder.mkdir(parents=True, exist_ok=True)
        with _locked(self._folder / "lock"):
            if not archive.exists():
                self._bound_store()
                self._build(recipe, name)
                self._export(name, archive)
                self._forget_old(recipe)
            os.utime(archive)
        return Image(name=name, archive=archive)

    def _build(self, recipe: Recipe, name: str) -> None:
        arguments = {"BASE": self._base(), "CREATED": CREATED, "REVISION": name.partition(":")[2]}
        if recipe.on is not None:
            argument, other = recipe.on
            arguments[argument] = f"{other.repository}:{digest(other, root=ROOT)}"
            if not self._stored(arguments[argument]):
                self._build(other, arguments[argument])
        self._say(f"building {name} from {recipe.dockerfile}")
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            given = secrets(Path(work), self._environment)
            self._buildah(
                *("bud", "--isolation", "chroot", "--layers", "--timestamp", "0"),
                *_options("--build-arg", (f"{key}={text}" for key, text in arguments.items())),
                *_options("--secret", (f"id={key},src={path}" for key, path in given.items())),
                *("--ignorefile", recipe.ignorefile, "--file", recipe.dockerfile),
                *("--tag", name, "."),
            )

    def _export(self, name: str, archive: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            docker, oci = Path(work) / "docker.tar", Path(work) / "oci.tar"
            self._buildah("push", "--quiet", name, f"docker-archive:{docker}:{name}")
            image_archive.repack(docker, into=oci, name=name)
            oci.rename(archive)

    def _base(self) -> str:
        name = f"localhost/pillion-base:{base_key()}"
        if not self._stored(name):
            tar = make_base(self._folder, say=self._say)
            with tempfile.TemporaryDirectory(dir=self._folder) as work:
                dockerfile = Path(work) / "Dockerfile"
                dockerfile.write_text(DOCKERFILE.format(tar=tar.name))
                context = str(tar.parent)
                self._buildah("bud", "--timestamp", "0", "-f", str(dockerfile), "-t", name, context)
        return name

    def _stored(self, name: str) -> bool:
        return bool(self._buildah("images", "--quiet", "--filter", f"reference={name}").strip())

    def _buildah(self, *arguments: str) -> str:
        store = self._folder / "store"
        folders = ("--root", str(store / "root"), "--runroot", str(store / "run"))
        command = ["buildah", *folders, "--storage-driver", "overlay", *arguments]
        return run(command, cwd=ROOT)

    def _bound_store(self) -> None:
        if len(self._buildah("images", "--all", "--quiet").split()) > STORE_LIMIT:
            self._say("emptying the store of images, which has grown large")
            self._buildah("rmi", "--all", "--force")

    def _forget_old(self, recipe: Recipe) -> None:
        kind = recipe.repository.rpartition("/")[2]
        # The tag is hexadecimal: no other image's archives begin with this one's name and a tag.
        archives = self._folder.glob(f"{kind}-{'[0-9a-f]' * 16}.tar")
        newest = sorted(archives, key=lambda path: path.stat().st_mtime, reverse=True)
        for path in newest[KEPT:]:
            path.unlink()


def _options(option: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (option, value)


def digest(recipe: Recipe, *, root: Path) -> str:
    """The tag of an image: a digest of its Dockerfile, of what that copies, and of its base."""
    below = base_key() if recipe.on is None else digest(recipe.on[1], root=root)
    found = hashlib.sha256(f"{base_key()} {below}\n".encode())
    for path in inputs(recipe, root=root):
        content = path.read_bytes()
        executable = os.access(path, os.X_OK)
        found.update(f"{path.relative_to(root)} {executable} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def inputs(recipe: Recipe, *, root: Path) -> list[Path]:
    """The files that go into an image, sorted."""
    names = (recipe.dockerfile, recipe.ignorefile, *recipe.sources)
    return sorted({path for name in names for path in _files(root / name)})


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for found in path.rglob("*"):
        if found.is_file() and "__pycache__" not in found.parts and found.suffix != ".pyc":
            yield found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
