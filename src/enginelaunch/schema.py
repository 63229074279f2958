"""The JSON Schema of a deployment file, for editors, with the docstrings of all fields."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from enginelaunch.deployment import Deployment
from enginelaunch.spec import Spec


def deployment_schema() -> dict[str, Any]:
    """The JSON Schema of a deployment file.

    Field docstrings are read from the sources here and not when the models are imported, which would
    double the time that takes.

    Example:
        >>> deployment_schema()["properties"]["engine"]["description"]
        'The engine: vllm.'
    """
    schema = Deployment.model_json_schema()
    described = {model.__name__: _field_docstrings(model) for model in _all_specs(Spec)}
    for name, definition in [("Deployment", schema), *schema["$defs"].items()]:
        definition["description"] = definition.get("description", "").partition("\n\nExample:")[0]
        for field, docstring in described.get(name, {}).items():
            if field in definition.get("properties", {}):
                definition["properties"][field].setdefault("description", docstring)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _all_specs(base: type[Spec]) -> list[type[Spec]]:
    return [spec for cls in base.__subclasses__() for spec in (cls, *_all_specs(cls))]


def _field_docstrings(model: type[Spec]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    docstrings: dict[str, str] = {}
    for field, following in zip(definition.body, definition.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            docstrings[field.target.id] = inspect.cleandoc(str(following.value.value))
    return docstrings
