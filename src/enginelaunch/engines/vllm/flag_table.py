"""The flags of `vllm serve` in a release, as a table to read an argv by."""

from __future__ import annotations

from functools import cache

import msgspec

from enginelaunch.argv import FlagTable
from enginelaunch.engines.catalogue import Catalogue
from enginelaunch.engines.vllm.grammar import serve_grammar
from enginelaunch.engines.vllm.releases import at_least


@cache
def serve_flags(release: str, positionals: int = 0) -> FlagTable:
    """The flags of `vllm serve` in a release.

    Args:
        release: a release of the catalogue.
        positionals: how many arguments without a flag are taken: 1 for a whole command, whose model
            stands in front; 0 for arguments that follow the model.
    """
    flags = Catalogue.load("vllm").flags(release)
    if not at_least(release, "0.9.2"):
        # CompilationConfig.from_cli takes a level alone beside an object, as in -O3.
        flags = tuple(
            msgspec.structs.replace(flag, value="json") if flag.name == "--compilation-config" else flag
            for flag in flags
        )
    return FlagTable(flags, serve_grammar(release, positionals))
