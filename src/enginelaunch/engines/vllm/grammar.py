"""How `vllm serve` reads spellings, release by release.

Read from FlexibleArgumentParser in the sources of each release; the rows say from which release on.
"""

from __future__ import annotations

import msgspec

from enginelaunch.argv import Grammar
from enginelaunch.engines.vllm.releases import at_least

_SHORTHAND = (
    # Before 0.9.2 `-O3` is the alias -O of --compilation-config with its value glued on.
    ("0.9.2", {"shorthand": "-O", "shorthand_means": "-O.level", "shorthand_dotted_means": "-O"}),
    ("0.11.1", {"shorthand": "-O", "shorthand_means": "-O.mode", "shorthand_dotted_means": "-O"}),
    (
        "0.12.0",
        {"shorthand": "-O", "shorthand_means": "--optimization-level", "shorthand_dotted_means": "-cc"},
    ),
    (
        "0.13.0",
        {"shorthand": "-O", "shorthand_means": "--optimization-level", "shorthand_dotted_means": None},
    ),
)


def serve_grammar(release: str, positionals: int = 0) -> Grammar:
    """The grammar of `vllm serve` in a release.

    Args:
        release: a release of the catalogue.
        positionals: how many arguments without a flag are taken.

    Example:
        >>> serve_grammar("0.12.0").shorthand_means
        '--optimization-level'
    """
    grammar = Grammar(
        dotted_keys=at_least(release, "0.9.0"),
        dotted_append=at_least(release, "0.9.2"),
        json_number_suffixes=at_least(release, "0.20.0"),
        positionals=positionals,
    )
    for since, changes in _SHORTHAND:
        if at_least(release, since):
            grammar = msgspec.structs.replace(grammar, **changes)
    return grammar
