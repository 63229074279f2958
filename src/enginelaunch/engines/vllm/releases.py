"""Comparing releases by their numbers."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def release_key(release: str) -> tuple[int, ...]:
    """The numbers of a release, without trailing zeros.

    Example:
        >>> release_key("0.10.1.1") > release_key("0.10.1") > release_key("0.9.2")
        True
    """
    numbers = [int(part) for part in release.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def at_least(release: str, first: str) -> bool:
    """Whether a release is `first` or newer.

    Example:
        >>> at_least("0.32.0", "0.9.0"), at_least("0.11.0", "0.11.1")
        (True, False)
    """
    return release_key(release) >= release_key(first)
