"""Read YAML without losing anything: a key that stands twice is an error."""

from __future__ import annotations

from typing import Any

import yaml

from enginelaunch.findings import LaunchError


class _Loader(yaml.SafeLoader):
    """The safe loader, refusing keys that stand twice in one mapping."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        try:
            twice = key in seen
        except TypeError:
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be plain text", key_node.start_mark
            ) from None
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(text: str, name: str) -> Any:
    """The data of a YAML text.

    Args:
        text: YAML.
        name: what to call it in errors.

    Raises:
        LaunchError: it is no YAML, or a key stands twice; the message names the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise LaunchError.of("unreadable-file", f"{name}{line}: {problem}", where=name) from None
