"""Host names and IP addresses: reading them, and writing them beside a port."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

# One expression instead of ipaddress, which is slow for the thousands of addresses of a cluster.
_NUMBER = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{3}}")
_SCOPE = re.compile(r"[A-Za-z0-9_.:@-]+")
_DIGITS_AND_DOTS = re.compile(r"[0-9.]+")
_NUMBERS_OF_C = re.compile(r"(?:(?:0[xX][0-9A-Fa-f]*|[0-9]+)\.?)+")
"""What resolvers take for an address written in another way, such as 0x7f.1."""
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?")


_LOCAL_NAMES = (
    *("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"),
    *("localhost4", "localhost4.localdomain4", "localhost6", "localhost6.localdomain6"),
)


class BadAddressError(ValueError):
    """A text is no IPv4 address, IPv6 address or host name."""


@lru_cache(maxsize=65536)
def bare_address(text: str) -> str:
    """The address without the brackets that an IPv6 address may have.

    Raises:
        BadAddressError: the text is no IPv4 address, IPv6 address or host name.

    Example:
        >>> bare_address("[fd00::1]"), bare_address("10.0.0.1"), bare_address("node-0.cluster")
        ('fd00::1', '10.0.0.1', 'node-0.cluster')
    """
    if _IPV4.fullmatch(text):
        return text
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare or bare != text:
        return _ipv6(bare, text)
    if _DIGITS_AND_DOTS.fullmatch(bare) or _NUMBERS_OF_C.fullmatch(bare):
        raise BadAddressError(f"{bare!r} is no IPv4 address: four numbers from 0 to 255")
    labels = bare.removesuffix(".").split(".")
    if len(bare) > 253 or not all(len(label) <= 63 and _LABEL.fullmatch(label) for label in labels):
        raise BadAddressError(f"{text!r} is no IPv4 address, IPv6 address or host name")
    return bare


def _ipv6(bare: str, text: str) -> str:
    try:
        scope = ipaddress.IPv6Address(bare).scope_id
        if scope is not None and not _SCOPE.fullmatch(scope):
            raise ValueError(scope)
    except ValueError:
        raise BadAddressError(
            f"{text!r} is no IPv6 address; give the address alone, without a port or a scheme"
        ) from None
    return bare


def is_ipv6(address: str) -> bool:
    """Whether a bare address is an IPv6 literal."""
    return ":" in address


def host_in_url(address: str) -> str:
    """A bare address as it stands in front of a port: IPv6 in brackets.

    Example:
        >>> host_in_url("fd00::1"), host_in_url("node-0")
        ('[fd00::1]', 'node-0')
    """
    return f"[{address}]" if is_ipv6(address) else address


def host_and_port(address: str, port: int) -> str:
    """`host:port` with an IPv6 address in brackets.

    Example:
        >>> host_and_port("fd00::1", 6379)
        '[fd00::1]:6379'
    """
    return f"{host_in_url(address)}:{port}"


@lru_cache(maxsize=65536)
def is_only_this_machine(address: str) -> bool:
    """Whether other machines cannot reach a bare address: loopback, or a wildcard for listening.

    Example:
        >>> [is_only_this_machine(a) for a in ("127.0.0.1", "::1", "0.0.0.0", "localhost", "10.0.0.1")]
        [True, True, True, True, False]
    """
    if _IPV4.fullmatch(address):
        return address.startswith("127.") or address == "0.0.0.0"
    name = address.removesuffix(".").lower()
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None) or ip
    return bool(mapped.is_loopback or mapped.is_unspecified)


@lru_cache(maxsize=65536)
def is_wildcard(address: str) -> bool:
    """Whether a server on this bare address listens on all of its machine's.

    Example:
        >>> [is_wildcard(a) for a in ("0.0.0.0", "::", "0:0::0", "10.0.0.1", "node-0")]
        [True, True, True, False, False]
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return bool((getattr(ip, "ipv4_mapped", None) or ip).is_unspecified)


@lru_cache(maxsize=65536)
def same_host_key(address: str) -> str:
    """A text that is equal for two spellings of one address.

    Example:
        >>> same_host_key("fd00:0::1") == same_host_key("fd00::1")
        True
    """
    try:
        ip = ipaddress.ip_address(address)
        return str(getattr(ip, "ipv4_mapped", None) or ip)
    except ValueError:
        return address.removesuffix(".").lower()
