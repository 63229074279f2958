"""Sixteen pydantic models of a like size, to compare the time of an import with."""

from typing import Literal

from pydantic import BaseModel, Field


class Model0(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None


class Model1(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model0 | None = None


class Model2(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model1 | None = None


class Model3(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model2 | None = None


class Model4(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model3 | None = None


class Model5(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model4 | None = None


class Model6(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model5 | None = None


class Model7(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model6 | None = None


class Model8(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model7 | None = None


class Model9(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model8 | None = None


class Model10(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model9 | None = None


class Model11(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model10 | None = None


class Model12(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model11 | None = None


class Model13(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model12 | None = None


class Model14(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model13 | None = None


class Model15(BaseModel, frozen=True, extra="forbid"):
    name: str = Field(min_length=1)
    size: int = Field(default=1, ge=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    mode: Literal["a", "b", "c"] = "a"
    flag: bool = False
    items: tuple[str, ...] = ()
    table: dict[str, str] = Field(default_factory=dict)
    address: str | None = None
    other: Model14 | None = None
