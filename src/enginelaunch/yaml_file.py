"""Read YAML without losing anything: a key that stands twice is an error."""

from __future__ import annotations

from typing import Any

import yaml

from enginelaunch.findings import LaunchError

_MISREAD = (ValueError, KeyError, IndexError, AttributeError, OverflowError, TypeError)
"""What PyYAML's constructors raise for a text that only looks like a number, a date or a truth value."""

_PLAIN_KEYS = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")


class _Loader(yaml.SafeLoader):
    """The safe loader, refusing keys that stand twice in one mapping."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._checked: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check what is written, before merged keys come to stand beside it."""
        if id(node) not in self._checked:
            self._checked.add(id(node))
            _refuse_twice(self, node)
        super().flatten_mapping(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Name the line of a value that cannot be read."""
        try:
            return super().construct_object(node, deep)
        except _MISREAD:
            # Without the value: it may be a secret that only looks like a number or a date.
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"a value cannot be read as {kind}; put quotes around text", node.start_mark
            ) from None


def _refuse_twice(loader: _Loader, node: yaml.MappingNode) -> None:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        plain = key_node.tag in _PLAIN_KEYS
        key = key_node.value if plain else loader.construct_object(key_node, deep=True)
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


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
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
    except RecursionError:
        message = f"{name}: it is nested too deeply"
        raise LaunchError.of("unreadable-file", message, where=name) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise LaunchError.of("unreadable-file", f"{name}{line}: {problem}", where=name) from None
