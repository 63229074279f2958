"""Host names and IP addresses."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginelaunch.addresses import (
    BadAddressError,
    bare_address,
    host_and_port,
    host_in_url,
    is_ipv6,
    is_only_this_machine,
    same_host_key,
)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("fd00::1", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("::", "::"),
        ("[::]", "::"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("[fe80::1%eth0.100]", "fe80::1%eth0.100"),
        ("node-0.cluster.local", "node-0.cluster.local"),
        ("node-0.cluster.local.", "node-0.cluster.local."),
        ("node_0", "node_0"),
        ("localhost", "localhost"),
        ("a" * 63, "a" * 63),
        ("1node", "1node"),
    ],
)
def test_an_address_is_kept_without_brackets(text: str, bare: str) -> None:
    assert bare_address(text) == bare


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no IPv4 address, IPv6 address or host name"),
        (" ", "' ' is no IPv4 address, IPv6 address or host name"),
        (".", "'.' is no IPv4 address: four numbers from 0 to 255"),
        ("10.0.0", "'10.0.0' is no IPv4 address: four numbers from 0 to 255"),
        ("10.0.0.256", "'10.0.0.256' is no IPv4 address: four numbers from 0 to 255"),
        ("10.0.0.01", "'10.0.0.01' is no IPv4 address: four numbers from 0 to 255"),
        ("8000", "'8000' is no IPv4 address: four numbers from 0 to 255"),
        ("10.0.0.1\n", "'10.0.0.1\\n' is no IPv4 address, IPv6 address or host name"),
        ("node 0", "'node 0' is no IPv4 address, IPv6 address or host name"),
        ("-node", "'-node' is no IPv4 address, IPv6 address or host name"),
        ("node-", "'node-' is no IPv4 address, IPv6 address or host name"),
        ("a..b", "'a..b' is no IPv4 address, IPv6 address or host name"),
        ("a" * 64, f"'{'a' * 64}' is no IPv4 address, IPv6 address or host name"),
        ("nöde", "'nöde' is no IPv4 address, IPv6 address or host name"),
        ("*", "'*' is no IPv4 address, IPv6 address or host name"),
        ("$(reboot)", "'$(reboot)' is no IPv4 address, IPv6 address or host name"),
        *(
            (bad, f"{bad!r} is no IPv6 address; give the address alone, without a port or a scheme")
            for bad in (
                "10.0.0.1:8000",
                "http://node",
                "[10.0.0.1]",
                "[node]",
                "[fd00::1]:8000",
                "[]",
                "[fd00::1",
                "fd00::1]",
                "[[fd00::1]]",
                "fd00:::1",
                "fd00::1/64",
                "fe80::1%",
                "fe80::1%\0",
                "fe80::1%eth0; reboot",
                "fe80::1%a b",
                "fe80::1%eth0\n",
                "fe80::1%]",
            )
        ),
    ],
)
def test_what_is_no_address_is_named_with_what_would_be_one(text: str, message: str) -> None:
    with pytest.raises(BadAddressError) as raised:
        bare_address(text)
    assert str(raised.value) == message


def test_a_name_longer_than_a_host_name_can_be_is_refused() -> None:
    name = ".".join(["a" * 49] * 6)
    with pytest.raises(BadAddressError, match=r"is no IPv4 address, IPv6 address or host name$"):
        bare_address(name)


@given(st.ip_addresses())
def test_every_ip_address_can_be_written_beside_a_port_and_read_back(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    address = bare_address(str(ip))
    host, _, port = host_and_port(address, 8000).rpartition(":")
    assert (bare_address(host), port) == (address, "8000")
    assert is_ipv6(address) is (ip.version == 6)


@given(st.ip_addresses(v=6))
def test_all_spellings_of_an_ipv6_address_are_the_same_host(ip: ipaddress.IPv6Address) -> None:
    assert same_host_key(ip.exploded.upper()) == same_host_key(ip.compressed)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Node-0", "node-0.", True),
        ("fd00:0::1", "FD00::1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("node-0", "node-1", False),
        ("fe80::1%eth0", "fe80::1%eth1", False),
    ],
)
def test_two_spellings_of_one_host_have_the_same_key(one: str, other: str, same: bool) -> None:
    assert (same_host_key(one) == same_host_key(other)) is same


@pytest.mark.parametrize(
    ("address", "url"),
    [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]"), ("node-0", "node-0"), ("::", "[::]")],
)
def test_only_ipv6_has_brackets_in_a_url(address: str, url: str) -> None:
    assert (host_in_url(address), host_and_port(address, 80)) == (url, f"{url}:80")


@pytest.mark.parametrize(
    ("address", "only_here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", True),
        ("::1", True),
        ("::", True),
        ("::1%lo", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:0.0.0.0", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("localhost.localdomain", True),
        ("ip6-localhost", True),
        ("ip6-loopback", True),
        ("node.localhost", True),
        ("10.0.0.1", False),
        ("fd00::1", False),
        ("fe80::1%eth0", False),
        ("localhost-1", False),
        ("notlocalhost", False),
        ("node", False),
    ],
)
def test_addresses_that_other_machines_cannot_reach(address: str, only_here: bool) -> None:
    assert is_only_this_machine(address) is only_here
