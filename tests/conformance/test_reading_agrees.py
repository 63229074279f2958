"""Our reading of an argv agrees with the real parser's, whatever the spelling."""

from __future__ import annotations

import random

import pytest
from packaging.version import Version
from real_vllm import RELEASES, RealVLLM

from enginelaunch.argv import Flag, parse
from enginelaunch.engines.catalogue import Catalogue
from enginelaunch.engines.vllm.flag_table import serve_flags

ARGVS = 1500

TEXTS = ("x", "a b", "ä", "", "None", "{", "true", "a=b", "1.5", "-1", "-", "-x", "/p/q")


def spelling(flag: Flag, dice: random.Random) -> str:
    """One way to write a flag."""
    # -O is no plain alias: what is glued to it is a level, which is checked apart.
    aliases = [alias for alias in flag.aliases if alias != "-O"]
    name = dice.choice([flag.name, flag.name, *aliases, *flag.negations])
    if name.startswith("--") and dice.random() < 0.3:
        name = "--" + name[2:].replace("-", "_")
    if name.startswith("--") and dice.random() < 0.1:
        name = name[: dice.randint(4, len(name))]
    return name if name not in NOT_ASKED else flag.name


def value(flag: Flag, dice: random.Random) -> str:
    """A value, mostly one that fits."""
    if dice.random() < 0.1:
        return dice.choice(TEXTS)
    if flag.choices:
        chosen = dice.choice(flag.choices)
        return chosen.upper().replace("_", "-") if flag.value == "lower_case_string" else chosen
    fitting = {
        "integer": ("1", "16", "007"),
        "float": ("0.5", "1", "1e3"),
        "human_readable_integer": ("4096", "4k", "4K", "2.5k", "1.5K"),
        "human_readable_integer_or_auto": ("4096", "4k", "auto", "-1"),
        "json": ("{}", '["a"]', '{"a": 1}', "1"),
        "json_or_string": ("x", '{"a": "b"}'),
        "config": ("{}",),
        "lora_modules": ("a=/x", '{"name":"a","path":"/x"}'),
    }
    return dice.choice(fitting.get(flag.value, ("x", "y z")))


def argv(flags: tuple[Flag, ...], dice: random.Random) -> list[str]:
    """A command line of a few flags."""
    items: list[str] = ["model"]
    for flag in dice.sample(flags, dice.randint(1, 3)):
        name = spelling(flag, dice)
        count = {0: 0, 1: 1, "?": dice.randint(0, 1), "+": dice.randint(1, 3), "*": dice.randint(0, 3)}.get(
            flag.nargs, flag.nargs
        )
        values = [value(flag, dice) for _ in range(int(count))]
        if values and dice.random() < 0.3:
            name, values = f"{name}={values[0]}", values[1:]
        items += [name, *values]
        if dice.random() < 0.03:
            items.append(dice.choice(TEXTS))
    return items


NOT_ASKED = {
    "--help": "it ends the program",
    "--config": "it reads a file",
    "--model": "vllm serve takes it for a second positional",
    "--mm-processor-device": "its choices depend on the platform",
}


def asked_flags(release: str) -> tuple[Flag, ...]:
    """The flags that are asked about."""
    return tuple(f for f in Catalogue.load("vllm").flags(release) if f.name not in NOT_ASKED)


@pytest.mark.parametrize("release", RELEASES)
def test_random_command_lines_are_read_alike(real_vllm: RealVLLM, release: str) -> None:
    dice = random.Random(release)
    flags = asked_flags(release)
    argvs = [argv(flags, dice) for _ in range(ARGVS)]
    verdicts = real_vllm.parse(release, [["vllm", "serve", *items] for items in argvs])
    table = serve_flags(release, positionals=1)
    wrong = []
    for items, verdict in zip(argvs, verdicts, strict=True):
        arguments = parse(items, table)
        if verdict.accepted != (not arguments.problems):
            wrong.append((items, verdict.why, [p.message for p in arguments.problems]))
    assert Version(release)
    assert not wrong, "\n".join(map(repr, wrong))
