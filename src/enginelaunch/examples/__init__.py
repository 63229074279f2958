"""Deployment files that ship with the package; the command line takes their names for files."""

from __future__ import annotations

import difflib
from importlib import resources

from enginelaunch.findings import LaunchError

_SUFFIX = ".yaml"


def names() -> tuple[str, ...]:
    """The names of all examples, in order.

    Example:
        >>> "two-nodes" in names()
        True
    """
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)))


def text(name: str) -> str:
    """The text of an example.

    Args:
        name: its name, with or without `.yaml`.

    Raises:
        LaunchError: there is no example of this name; the hint says which there are.

    Example:
        >>> text("one-gpu") == text("one-gpu.yaml")
        True
    """
    known = names()
    plain = name.removesuffix(_SUFFIX)
    if plain not in known:
        raise LaunchError.of("unknown-example", f"{name!r} is no example", hint=nearest(name))
    return resources.files(__name__).joinpath(plain + _SUFFIX).read_text(encoding="utf-8")


def says(name: str) -> str:
    """What an example is about: the first line of its file, a comment.

    Raises:
        LaunchError: as `text`.

    Example:
        >>> says("one-gpu")
        'An 8B model on one GPU.'
    """
    return text(name).splitlines()[0].removeprefix("#").strip()


def nearest(name: str) -> str:
    """A hint for somebody who asked for an example that is not there: the nearest one, and all of them.

    Example:
        >>> nearest("two-node").startswith("did you mean two-nodes? The examples are ")
        True
    """
    known = names()
    close = difflib.get_close_matches(name.removesuffix(_SUFFIX), known, n=1)
    begins = f"did you mean {close[0]}? The" if close else "the"
    return f"{begins} examples are {', '.join(known)}"
