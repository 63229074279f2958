"""Evaluates the expressions of one release's sources, over plain values and stand-ins."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from enginelaunch.engines.vllm.source_tree import SourceError
from enginelaunch.engines.vllm.source_values import EngineClass, EngineFunction, OrderedSet, Unknown


@dataclass
class Frame:
    """One call in progress.

    Attributes:
        module: where names that are not local are looked up.
        local: the local values, by name.
        owner: the class whose method is running.
    """

    module: str
    local: dict[str, object]
    owner: EngineClass | None = None


class ExpressionEvaluator(ABC):
    """Evaluates expressions; what names, attributes and calls mean is left to who derives from it."""

    @abstractmethod
    def look_up(self, module: str, name: str) -> object:
        """Returns what a module-level name stands for."""

    @abstractmethod
    def attribute(self, value: object, name: str) -> object:
        """Returns an attribute of a value."""

    @abstractmethod
    def evaluate_call(self, node: ast.Call, frame: Frame) -> object:
        """Returns what a call comes to."""

    @abstractmethod
    def enumeration_members(self, cls: EngineClass) -> Iterable[object]:
        """Returns what iterating over a class of the sources gives."""

    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        """Returns the value of an expression.

        Raises:
            SourceError: it is of a kind that is not followed, or hangs on a value that is not known.
        """
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return frame.local[node.id] if node.id in frame.local else self.look_up(frame.module, node.id)
            case ast.Attribute():
                return self.attribute(self.evaluate(node.value, frame), node.attr)
            case ast.Subscript():
                return self._subscript(node, frame)
            case ast.Slice():
                ends = (node.lower, node.upper, node.step)
                return slice(*(None if end is None else self.evaluate(end, frame) for end in ends))
            case ast.List() | ast.Tuple() | ast.Set():
                kinds: dict[type[ast.expr], Callable[[list[object]], object]]
                kinds = {ast.List: list, ast.Tuple: tuple, ast.Set: OrderedSet}
                return kinds[type(node)](self.elements(node.elts, frame))
            case ast.Dict():
                return self._dictionary(node, frame)
            case ast.BinOp():
                return operate(node.op, self.evaluate(node.left, frame), self.evaluate(node.right, frame))
            case ast.BoolOp():
                return self._bool_operation(node, frame)
            case ast.UnaryOp(op=ast.Not()):
                operand = self.evaluate(node.operand, frame)
                return operand if isinstance(operand, Unknown) else not operand
            case ast.NamedExpr():
                value = self.evaluate(node.value, frame)
                self.assign(node.target, value, frame)
                return value
            case ast.UnaryOp(op=ast.USub()):
                return -self.evaluate(node.operand, frame)
            case ast.Compare():
                return self._comparison(node, frame)
            case ast.IfExp():
                condition = self.evaluate(node.test, frame)
                if isinstance(condition, Unknown):
                    return condition
                return self.evaluate(node.body if condition else node.orelse, frame)
            case ast.ListComp():
                return self._comprehension(node, node.elt, frame)
            case ast.GeneratorExp():
                return iter(self._comprehension(node, node.elt, frame))
            case ast.SetComp():
                return OrderedSet(self._comprehension(node, node.elt, frame))
            case ast.DictComp():
                pair = ast.Tuple([node.key, node.value], ast.Load())
                return dict(self._comprehension(node, pair, frame))
            case ast.Lambda():
                return self.closure("<lambda>", node, frame)
            case ast.JoinedStr():
                return "".join(str(self.evaluate(part, frame)) for part in node.values)
            case ast.FormattedValue():
                return self.evaluate(node.value, frame)
            case ast.Call():
                return self.evaluate_call(node, frame)
            case _:
                raise self.refused(node, frame, "this kind of expression is not followed")

    def elements(self, nodes: list[ast.expr], frame: Frame) -> list[object]:
        """Returns the values of expressions, `*X` taken apart."""
        values: list[object] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                value = self.evaluate(node.value, frame)
                values.extend([value] if isinstance(value, Unknown) else value)
            else:
                values.append(self.evaluate(node, frame))
        return values

    def _dictionary(self, node: ast.Dict, frame: Frame) -> dict[object, object]:
        result: dict[object, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(self.evaluate(value, frame))
            else:
                result[self.evaluate(key, frame)] = self.evaluate(value, frame)
        return result

    def _bool_operation(self, node: ast.BoolOp, frame: Frame) -> object:
        stops_at = isinstance(node.op, ast.Or)
        value: object = None
        undecided: Unknown | None = None
        for operand in node.values:
            value = self.evaluate(operand, frame)
            if isinstance(value, Unknown):
                undecided = value
            elif bool(value) is stops_at:
                return value
        return value if undecided is None else undecided

    def _comparison(self, node: ast.Compare, frame: Frame) -> object:
        left = self.evaluate(node.left, frame)
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node, frame)
            unknown = next((side for side in (left, right) if isinstance(side, Unknown)), None)
            if unknown is not None and not isinstance(operator, ast.Is | ast.IsNot):
                return unknown
            if not _COMPARISONS[type(operator)](left, right):
                return False
            left = right
        return True

    def _comprehension(
        self,
        node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp,
        result: ast.expr,
        frame: Frame,
    ) -> list[Any]:
        inner = Frame(frame.module, dict(frame.local), frame.owner)
        results: list[object] = []

        def descend(depth: int) -> None:
            if depth == len(node.generators):
                results.append(self.evaluate(result, inner))
                return
            generator = node.generators[depth]
            for item in self.items(self.evaluate(generator.iter, inner), node, inner):
                self.assign(generator.target, item, inner)
                if all(self.holds(condition, inner) for condition in generator.ifs):
                    descend(depth + 1)

        descend(0)
        return results

    def items(self, value: object, node: ast.AST, frame: Frame) -> list[object]:
        """Returns what iterating over a value gives; a class gives its members."""
        if isinstance(value, EngineClass):
            return list(self.enumeration_members(value))
        if isinstance(value, Unknown):
            raise self.refused(node, frame, f"what {value.path} holds is not known")
        return list(cast("Iterable[object]", value))

    def holds(self, node: ast.expr, frame: Frame) -> bool:
        """Says whether a condition holds.

        Raises:
            SourceError: it hangs on a value that is not known.
        """
        value = self.evaluate(node, frame)
        if isinstance(value, Unknown):
            raise self.refused(node, frame, f"the value of {value.path} is not known")
        return bool(value)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> object:
        base = self.evaluate(node.value, frame)
        if isinstance(node.slice, ast.Tuple):
            elements = self.elements(node.slice.elts, frame)
            # `Literal[*X]` and `dict[K, V]` both give a tuple, but `Callable[[A], B]` a list in it.
            return base[tuple(elements)]
        return base[self.evaluate(node.slice, frame)]

    def closure(self, name: str, node: ast.FunctionDef | ast.Lambda, frame: Frame) -> EngineFunction:
        """Makes a function with the values of its defaults and the names around it."""
        positional = [*node.args.posonlyargs, *node.args.args]
        defaults = [None] * (len(positional) - len(node.args.defaults)) + node.args.defaults
        parameters = [*positional, *node.args.kwonlyargs]
        values = {
            parameter.arg: self.evaluate(default, frame)
            for parameter, default in zip(parameters, [*defaults, *node.args.kw_defaults], strict=True)
            if default is not None
        }
        return EngineFunction(frame.module, name, node, frame.owner, None, frame.local, values)

    def assign(self, target: ast.expr, value: object, frame: Frame) -> None:
        """Gives a value to a name, to the names of a tuple, or to a place in a container."""
        match target:
            case ast.Name():
                frame.local[target.id] = value
            case ast.Tuple() | ast.List():
                for part, item in zip(target.elts, cast("Iterable[object]", value), strict=True):
                    self.assign(part, item, frame)
            case ast.Subscript():
                container = cast(Any, self.evaluate(target.value, frame))
                if not isinstance(container, Unknown):
                    container[self.evaluate(target.slice, frame)] = value
            case ast.Attribute():
                pass  # Attributes are set on the parser for its help only.
            case _:
                raise self.refused(target, frame, "this kind of target is not followed")

    def refused(self, node: ast.AST, frame: Frame, why: str) -> SourceError:
        """Makes the error that says where in the sources what could not be followed."""
        text = ast.unparse(node).partition("\n")[0]
        return SourceError(f"{frame.module}, line {getattr(node, 'lineno', '?')}: {text}: {why}")


def operate(operator: ast.operator, left: Any, right: Any) -> Any:
    """Applies an operator to two values."""
    match operator:
        case ast.BitOr():
            return left | right
        case ast.Add():
            unknown = next((side for side in (left, right) if isinstance(side, Unknown)), None)
            return unknown if unknown is not None else left + right
        case ast.Mult():
            return left * right
        case ast.Pow():
            return left**right
        case ast.Sub():
            return left - right
        case _:
            raise TypeError(f"the operator {type(operator).__name__} is not followed")


_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Is: lambda left, right: left is right,
    ast.IsNot: lambda left, right: left is not right,
    ast.Eq: lambda left, right: bool(left == right),
    ast.NotEq: lambda left, right: bool(left != right),
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
}
