"""One release's sources as text: which module binds which name, and to what.

Nothing is imported or run. A module is parsed when first asked for, and a name is followed through
the package's own imports until a class, a function or an assigned expression is reached.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

MAXIMUM_IMPORT_STEPS: Final = 20


class SourceError(ValueError):
    """The sources hold something this reader cannot make out; the text says where."""


@dataclass(frozen=True, slots=True)
class Import:
    """A name that an import statement binds: to `module`, or to `attribute` in it."""

    module: str
    attribute: str | None


Binding = Import | ast.ClassDef | ast.FunctionDef | ast.expr
"""What a module-level name stands for."""


@dataclass(frozen=True, slots=True)
class Found:
    """A binding, and the module in which it was made."""

    module: str
    name: str
    binding: ast.ClassDef | ast.FunctionDef | ast.expr


@dataclass(frozen=True, slots=True)
class Outside:
    """A name that leads out of the package, as a dotted path."""

    path: str


class SourceTree:
    """The parsed modules of one package.

    Args:
        texts: the text of each source file, by its path in the package's parent folder
            (`vllm/config/cache.py`).

    Example:
        >>> tree = SourceTree({"p/__init__.py": "from .a import X", "p/a.py": "X = 1"})
        >>> tree.find("p", "X").module
        'p.a'
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._bindings: dict[str, dict[str, Binding] | None] = {}

    def has_module(self, module: str) -> bool:
        """Says whether the package holds the module."""
        return self._path(module) is not None

    def bindings(self, module: str) -> Mapping[str, Binding]:
        """Returns what each name of the module is bound to.

        Raises:
            SourceError: the module is not in the package, or is no Python that this one can parse.
        """
        if module not in self._bindings:
            self._bindings[module] = self._read(module)
        found = self._bindings[module]
        if found is None:
            raise SourceError(f"no module {module} among the sources")
        return found

    def find(self, module: str, name: str) -> Found | Outside | None:
        """Follows a name from a module to where it is made.

        Returns:
            where it is made, the dotted path by which it leaves the package, or None when the module
            binds no such name.

        Raises:
            SourceError: the imports go round in a circle.
        """
        for _ in range(MAXIMUM_IMPORT_STEPS):
            binding = self.bindings(module).get(name)
            if binding is None:
                submodule = f"{module}.{name}"
                return Outside(submodule) if self.has_module(submodule) else self._find_starred(module, name)
            if not isinstance(binding, Import):
                return Found(module, name, binding)
            if binding.attribute is None or not self.has_module(binding.module):
                return Outside(".".join(filter(None, (binding.module, binding.attribute))))
            module, name = binding.module, binding.attribute
        raise SourceError(f"the imports of {name} in {module} do not end")

    def _find_starred(self, module: str, name: str) -> Found | Outside | None:
        """Follows a name through the modules of which everything is imported."""
        for bound, binding in self.bindings(module).items():
            if bound.startswith("*") and isinstance(binding, Import) and self.has_module(binding.module):
                found = self.find(binding.module, name)
                if found is not None:
                    return found
        return None

    def _path(self, module: str) -> str | None:
        base = module.replace(".", "/")
        return next((path for path in (f"{base}.py", f"{base}/__init__.py") if path in self._texts), None)

    def _read(self, module: str) -> dict[str, Binding] | None:
        path = self._path(module)
        if path is None:
            return None
        try:
            parsed = ast.parse(self._texts[path], filename=path)
        except SyntaxError as error:
            raise SourceError(f"{path} is no Python that this one can parse: {error}") from error
        package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
        bindings: dict[str, Binding] = {}
        for name, binding in _bound_names(parsed.body, package):
            bindings.setdefault(name, binding)
        return bindings


def _bound_names(body: list[ast.stmt], package: str) -> Iterator[tuple[str, Binding]]:
    """Yields the names that statements bind; where branches bind the same one, the likelier first.

    What stands under `if TYPE_CHECKING` does not exist when the release runs: only the other branch
    counts. Of a `try` the body comes first, and of any other `if` its first branch.
    """
    for statement in reversed(body):
        match statement:
            case ast.ClassDef() | ast.FunctionDef():
                yield statement.name, statement
            case ast.Import() | ast.ImportFrom():
                yield from _imported_names(statement, package)
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, statement.value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                assert statement.value is not None
                yield name, statement.value
            case ast.If():
                if "TYPE_CHECKING" not in ast.unparse(statement.test):
                    yield from _bound_names(statement.body, package)
                yield from _bound_names(statement.orelse, package)
            case ast.Try():
                yield from _bound_names(statement.body, package)
                for handler in statement.handlers:
                    yield from _bound_names(handler.body, package)
            case _:
                pass


def _imported_names(statement: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, Import]]:
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if alias.asname:
                yield alias.asname, Import(alias.name, None)
            else:
                top = alias.name.partition(".")[0]
                yield top, Import(top, None)
        return
    base = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
    module = ".".join([*base, *([statement.module] if statement.module else [])])
    for alias in statement.names:
        # Everything that a module holds may be imported from several ones, so each has its own key.
        key = f"* of {module}" if alias.name == "*" else alias.asname or alias.name
        yield key, Import(module, alias.name)
