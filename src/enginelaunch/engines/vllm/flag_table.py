"""The flags of `vllm serve` in a release, as a table to read an argv by."""

from __future__ import annotations

from functools import cache

from enginelaunch.argv import FlagTable
from enginelaunch.engines.catalogue import Catalogue
from enginelaunch.engines.vllm.grammar import serve_grammar


@cache
def serve_flags(release: str, positionals: int = 0) -> FlagTable:
    """The flags of `vllm serve` in a release.

    Args:
        release: a release of the catalogue.
        positionals: how many arguments without a flag are taken: 1 for a whole command, whose model
            stands in front; 0 for arguments that follow the model.
    """
    return FlagTable(Catalogue.load("vllm").flags(release), serve_grammar(release, positionals))
