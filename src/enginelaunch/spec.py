"""The base of all specs: frozen, closed to unknown keys, and plain about what is wrong.

Every error names the field, the value and what is allowed. A value is named in the message and
nowhere else, so that a secret given in the wrong place is not printed.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from enginelaunch.addresses import BadAddressError, bare_address
from enginelaunch.command import EnvironmentSecret, FileSecret, LiteralSecret, SecretReference

_EXPLAINED = "explained"
"""Type prefix of errors whose message already names the value; they are passed on as they are."""


def explained(kind: str, message: str) -> PydanticCustomError:
    """An error whose message says all that a person needs."""
    return PydanticCustomError(f"{_EXPLAINED}_{kind}", "{text}", {"text": message})  # type: ignore[arg-type]


class Spec(BaseModel):
    """A frozen model that forbids unknown keys.

    Raises:
        pydantic.ValidationError: a field is unknown, missing or bad; the message names the field, the
            value and what is allowed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    secret_fields: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(cls, data: Any, handler: ModelWrapValidatorHandler[Spec]) -> Spec:
        try:
            return handler(data)
        except ValidationError as error:
            details = [cls._explain(entry) for entry in error.errors()]
            raise ValidationError.from_exception_data(cls.__name__, details, hide_input=True) from None

    @classmethod
    def _explain(cls, entry: Any) -> InitErrorDetails:
        location: tuple[str | int, ...] = entry["loc"]
        if entry["type"].startswith(_EXPLAINED):
            message, kind = entry["msg"], entry["type"].removeprefix(f"{_EXPLAINED}_")
        elif entry["type"] == "extra_forbidden":
            message, kind = cls._unknown_key(str(location[-1])), "unknown_key"
        elif entry["type"] == "missing":
            message, kind = "is required", "missing"
        else:
            shown = "" if cls.secret_fields.intersection(location) else f", not {_shown(entry['input'])}"
            message, kind = entry["msg"].removeprefix("Input ").removeprefix("Value error, ") + shown, "value"
        return InitErrorDetails(type=explained(kind, message), loc=location, input=None)

    @classmethod
    def _unknown_key(cls, key: str) -> str:
        import difflib  # noqa: PLC0415 - only needed for an error message

        close = difflib.get_close_matches(key, cls.model_fields, n=1, cutoff=0.5)
        if close:
            return f"unknown key {key!r}; did you mean {close[0]!r}?"
        return f"unknown key {key!r}; known are {', '.join(cls.model_fields)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise explained("nul", f"must not hold a NUL byte, which no process can be given, not {text!r}")
    return text


def _not_empty(text: str) -> str:
    if not text or text.isspace():
        raise explained("empty", f"must not be empty, not {text!r}")
    return _no_nul(text)


def _address(text: str) -> str:
    try:
        return bare_address(text)
    except BadAddressError as error:
        raise explained("address", str(error)) from None


def _variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise explained("variable", f"must be the name of an environment variable, not {name!r}")
    return name


PlainText = Annotated[str, Field(strict=True), AfterValidator(_no_nul)]
"""Text that a process can be given: no NUL byte."""

NonEmptyText = Annotated[str, Field(strict=True), AfterValidator(_not_empty)]
"""Text that a process can be given and that says something."""

Address = Annotated[str, Field(strict=True), AfterValidator(_address)]
"""An IPv4 address, an IPv6 address (in brackets or not) or a host name; kept without brackets."""

Size = Annotated[int, Field(strict=True, ge=1)]
"""A whole number from 1 on."""

Count = Annotated[int, Field(strict=True, ge=0)]
"""A whole number from 0 on."""

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
"""A TCP port from 1 to 65535."""

Switch = Annotated[bool, Field(strict=True)]
"""true or false."""

VariableName = Annotated[str, Field(strict=True), AfterValidator(_variable_name)]
"""The name of an environment variable."""


def _one_or_several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


OneOrSeveral = Annotated[
    tuple[NonEmptyText, ...],
    BeforeValidator(_one_or_several),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}},
            ]
        }
    ),
]
"""Texts, of which one may stand without a list around it."""

_HOW_TO_NAME_A_SECRET = (
    "a secret is named, not written: {env: NAME} for an environment variable, {file: PATH} for a file; "
    "Python code may hand in a pydantic.SecretStr"
)


def read_secret(value: Any) -> SecretReference:
    """A secret reference from what a file or Python code gives.

    Raises:
        PydanticCustomError: it is a literal, or names nothing; the message does not repeat it.
    """
    if isinstance(value, SecretReference):
        return value
    if hasattr(value, "get_secret_value"):
        return LiteralSecret(value.get_secret_value())
    if isinstance(value, dict) and len(value) == 1:
        (kind, name), *_ = value.items()
        if isinstance(name, str) and name and "\0" not in name:
            if kind == "env" and "=" not in name:
                return EnvironmentSecret(name)
            if kind == "file":
                return FileSecret(name)
    raise explained("secret", _HOW_TO_NAME_A_SECRET)


Secret = Annotated[
    EnvironmentSecret | FileSecret | LiteralSecret,
    PlainValidator(read_secret),
    PlainSerializer(lambda secret: secret.as_dict()),
    WithJsonSchema(
        {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {key: {"type": "string", "minLength": 1}},
                    "required": [key],
                    "additionalProperties": False,
                }
                for key in ("env", "file")
            ],
            "description": "Where the secret is kept: an environment variable or a file.",
        }
    ),
]
"""A reference to a secret: `{env: NAME}`, `{file: PATH}`, or in Python a `pydantic.SecretStr`."""
