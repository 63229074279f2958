"""The base of all specs: frozen, closed to unknown keys, and plain about what is wrong.

Every error names the field, the value and what is allowed. A value is named in the message and
nowhere else, so that a secret given in the wrong place is not printed.
"""

from __future__ import annotations

import re
import reprlib
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


_SECRET_WORDS = frozenset(
    {"KEY", "APIKEY", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL", "CREDENTIALS"}
)
_NOT_THE_SECRET_ITSELF = frozenset({"THRESHOLD", "SIZE", "COUNT", "LIMIT", "FILE", "PATH", "DIR"})
"""Last words of names that speak of a number of tokens, or of where a secret is kept."""


_PART_OF_A_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
"""A word in MAX_TOKENS, api-key, hf.token or accessToken."""


def names_a_secret(variable: str) -> bool:
    """Whether an environment variable's name looks like a key, a token or a password.

    Example:
        >>> [names_a_secret(v) for v in ("HF_TOKEN", "TOKENIZERS_PARALLELISM", "MAX_TOKENS")]
        [True, False, False]
    """
    words = [word.upper() for word in _PART_OF_A_NAME.findall(variable)] or [""]
    return not _SECRET_WORDS.isdisjoint(words) and words[-1] not in _NOT_THE_SECRET_ITSELF


def explained(kind: str, message: str) -> PydanticCustomError:
    """An error whose message says all that a person needs."""
    return PydanticCustomError(f"{_EXPLAINED}_{kind}", "{text}", {"text": message})


def placed(error: ValidationError, *place: str | int) -> ValidationError:
    """The same errors of a spec, further in: at a place in what holds it."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError(entry["type"], "{text}", {"text": entry["msg"]}),
            loc=(*place, *entry["loc"]),
            input=None,
        )
        for entry in error.errors(include_url=False, include_input=False)
    ]
    return ValidationError.from_exception_data(error.title, details, hide_input=True)


_ALLOWED = {
    "model_type": "must be a mapping of fields",
    "model_attributes_type": "must be a mapping of fields",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
}
"""What pydantic's types of error mean to someone who writes a file."""


def _quotes_hint(entry: Any) -> str:
    given = entry["input"]
    if entry["type"] == "string_type" and isinstance(given, (int, float)):
        return "; write it in quotes"
    if entry["type"] == "int_type" and isinstance(given, str) and given.strip().isdecimal():
        return "; write it without quotes"
    return ""


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
            ending = "" if cls.secret_fields.intersection(location) else f", not {shown(entry['input'])}"
            allowed = _ALLOWED.get(entry["type"]) or entry["msg"].removeprefix("Input ")
            message, kind = allowed + ending + _quotes_hint(entry), "value"
        return InitErrorDetails(type=explained(kind, message), loc=location, input=None)

    @classmethod
    def _unknown_key(cls, key: str) -> str:
        import difflib  # noqa: PLC0415 - only needed for an error message

        close = difflib.get_close_matches(key, cls.model_fields, n=1, cutoff=0.5)
        if close:
            return f"unknown key {key!r}; did you mean {close[0]!r}?"
        return f"unknown key {key!r}; known are {', '.join(cls.model_fields)}"


_WORD = re.compile(r"[A-Za-z0-9_-]+")
_ONE_WORD = re.compile(r"[^\s=:]*")

# Aliases of YAML make lists in lists whose whole text would fill the memory.
_BRIEFLY = reprlib.Repr()
_BRIEFLY.maxlevel = 4
_BRIEFLY.maxdict = _BRIEFLY.maxlist = _BRIEFLY.maxtuple = _BRIEFLY.maxset = 20
_BRIEFLY.maxstring = _BRIEFLY.maxlong = _BRIEFLY.maxother = 10_000


NOT_SHOWN = "(not shown: it may hold a secret)"
"""What a message says in place of a value."""


def shown(value: Any) -> str:
    """A value as a message shows it: short, and not at all where a secret may be in it."""
    try:
        text = repr(value) if isinstance(value, str) else _BRIEFLY.repr(value)
    except Exception:  # a number of too many digits, or an object that cannot say what it is
        return f"a value of type {type(value).__name__}"
    inside = not isinstance(value, str) or not _ONE_WORD.fullmatch(value)
    if inside and any(names_a_secret(word) for word in _WORD.findall(text)):
        return NOT_SHOWN
    return text if len(text) <= 120 else text[:117] + "..."


def no_nul(text: str) -> str:
    """The text, which a process can be given.

    Raises:
        PydanticCustomError: it holds a NUL byte, or half of a character.
    """
    if "\0" in text:
        raise explained("nul", f"must not hold a NUL byte, which no process can be given, not {text!r}")
    if not is_whole_text(text):
        raise explained("text", f"must be text that can be written as UTF-8, not {text!r}")
    return text


def is_whole_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_empty(text: str) -> str:
    if not text or text.isspace():
        raise explained("empty", f"must not be empty, not {text!r}")
    return no_nul(text)


def _address(text: str) -> str:
    try:
        return bare_address(text)
    except BadAddressError as error:
        raise explained("address", str(error)) from None


_INTERFACES = re.compile(r"[^\s/=^,]+(?:,[^\s/=^,]+)*")


def _interface(text: str) -> str:
    if not _INTERFACES.fullmatch(text):
        raise explained("interface", f"must be the name of a network interface such as eth0, not {text!r}")
    return text


def _variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name or not is_whole_text(name):
        raise explained("variable", f"must be the name of an environment variable, not {name!r}")
    return name


PlainText = Annotated[str, Field(strict=True), AfterValidator(no_nul)]
"""Text that a process can be given: no NUL byte."""

NonEmptyText = Annotated[str, Field(strict=True), AfterValidator(_not_empty)]
"""Text that a process can be given and that says something."""

Address = Annotated[str, Field(strict=True), AfterValidator(_address)]
"""An IPv4 address, an IPv6 address (in brackets or not) or a host name; kept without brackets."""

Interface = Annotated[NonEmptyText, AfterValidator(_interface)]
"""The name of a network interface; several with commas between them."""

LARGEST_SIZE = 65536
"""More nodes or ranks than anyone has; a larger number is a slip."""

Size = Annotated[int, Field(strict=True, ge=1, le=LARGEST_SIZE)]
"""A whole number from 1 to 65536."""

Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SIZE)]
"""A whole number from 0 to 65536."""

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
"""A TCP port from 1 to 65535."""


def _not_a_flag(text: str) -> str:
    if text.startswith("-"):
        raise explained("flag", f"must not begin with '-', which reads as a flag, not {text!r}")
    return text


NameOnCommandLine = Annotated[NonEmptyText, AfterValidator(_not_a_flag)]
"""Text that stands on a command line by itself."""

Switch = Annotated[bool, Field(strict=True)]
"""true or false."""

VariableName = Annotated[str, Field(strict=True), AfterValidator(_variable_name)]
"""The name of an environment variable."""


def _one_or_several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


OneOrSeveral = Annotated[
    tuple[NameOnCommandLine, ...],
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

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The value is not shown, since it may be the secret itself.
_HOW_TO_NAME_A_SECRET = (
    "a secret is named, not written: {env: NAME} for an environment variable (letters, digits and _, "
    "without a $), {file: PATH} for a file (a whole path, without a ~); "
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
        secret = value.get_secret_value()
        if isinstance(secret, bytes):
            secret = secret.decode(errors="surrogateescape")
        if secret and "\0" not in secret:
            return LiteralSecret(secret)
    if isinstance(value, dict) and len(value) == 1:
        (kind, name), *_ = value.items()
        if isinstance(name, str) and name and "\0" not in name and is_whole_text(name):
            if kind == "env" and _VARIABLE.fullmatch(name):
                return EnvironmentSecret(name)
            if kind == "file" and not name.startswith("~"):  # which nobody expands
                return FileSecret(name)
    raise explained("secret", _HOW_TO_NAME_A_SECRET)


SECRET_SCHEMA: dict[str, Any] = {
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
"""A reference to a secret in a JSON schema."""

Secret = Annotated[
    EnvironmentSecret | FileSecret | LiteralSecret,
    PlainValidator(read_secret),
    PlainSerializer(lambda secret: secret.as_dict()),
    WithJsonSchema(SECRET_SCHEMA),
]
"""A reference to a secret: `{env: NAME}`, `{file: PATH}`, or in Python a `pydantic.SecretStr`."""
