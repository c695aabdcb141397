"""Settings of a running model and server: each one a field with its flag, environment name, help and default.

A flag beats the environment, the environment beats the default. The parser, `--help` and docs/settings.md are
all made from these fields, so a new setting is one new field.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_METADATA = "openjev.setting"


class SettingError(ValueError):
    """A setting has a value that is not allowed; the message names its source, the value, what is allowed."""


@dataclass(frozen=True)
class Setting:
    """One setting as users see it.

    `parse` turns the text of a flag or variable into the value and raises ValueError for a text that is not
    `allowed`. A `switch` is a flag without a value that also exists as `--no-...`; a `repeatable` flag may be
    given several times and its variable holds values separated by commas. A `secret` value is never repeated
    in a message.
    """

    name: str
    flag: str
    env: str
    help: str
    default: Any
    allowed: str
    parse: Callable[[str], Any]
    metavar: str | None = None
    switch: bool = False
    repeatable: bool = False
    secret: bool = False

    def read(self, text: str, source: str) -> Any:
        """Parses `text`, which came from `source` (the flag or the variable). Raises SettingError."""
        try:
            return self.parse(text)
        except ValueError:
            found = "a value that is not allowed" if self.secret else repr(text)
            raise SettingError(f"{source}: found {found}, allowed: {self.allowed}") from None

    def default_text(self) -> str:
        """The default as one would write it in a shell; empty for an empty text or list."""
        if self.switch:
            return "on" if self.default else "off"
        if self.repeatable:
            return ",".join(self.default)
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def _whole(minimum: int, maximum: int) -> tuple[str, Callable[[str], int]]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
            raise ValueError(text)
        value = int(text)
        if not minimum <= value <= maximum:
            raise ValueError(text)
        return value

    return f"a whole number from {minimum} to {maximum}", parse


def _seconds(maximum: float) -> tuple[str, Callable[[str], float]]:
    def parse(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or not 0 <= value <= maximum:
            raise ValueError(text)
        return value

    return f"a number of seconds from 0 to {maximum:g}", parse


def _matching(pattern: str, allowed: str) -> tuple[str, Callable[[str], str]]:
    compiled = re.compile(pattern)

    def parse(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(text)
        return text

    return allowed, parse


def _switch(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError(text)
    return lowered in _TRUE


def _setting(
    default: Any,
    help: str,
    kind: tuple[str, Callable[[str], Any]] | None = None,
    *,
    metavar: str | None = None,
    repeatable: bool = False,
    secret: bool = False,
) -> Any:
    """A dataclass field that carries what `Setting` needs; without `kind` it is a switch."""
    switch = kind is None
    allowed, parse = kind or ("1, true, yes, on, 0, false, no or off", _switch)
    carried = {
        "help": help,
        "allowed": allowed,
        "parse": parse,
        "metavar": metavar,
        "switch": switch,
        "repeatable": repeatable,
        "secret": secret,
    }
    return field(default=default, repr=not secret, metadata={_METADATA: carried})


_ORIGIN = _matching(
    r"[a-z][a-z0-9+.-]*://[^\s/?#,]+",
    "an origin such as https://app.example or http://localhost:5173, without a path",
)


@dataclass(frozen=True)
class Settings:
    """Every setting, with its default. See docs/settings.md for the table made from it."""

    model: str = _setting(
        "demo",
        "checkpoint: a folder, or a known name, which is pulled if need be; 'demo' is bundled",
        _matching(r"(?s).+", "a folder or a name"),
        metavar="PATH|NAME",
    )
    host: str = _setting(
        "127.0.0.1",
        "address to listen on; set an API key before listening on anything but loopback",
        _matching(r"[^\s/]+", "a host name or an address"),
    )
    port: int = _setting(8000, "TCP port to listen on; 0 takes a free one", _whole(0, 65535))
    device: str = _setting(
        "auto",
        "where the model runs; 'auto' takes the first usable device of 'openjev doctor'",
        _matching(r"auto|cpu|cuda(:[0-9]{1,3})?", "auto, cpu, cuda or cuda:N"),
    )
    threads: int = _setting(
        0, "CPU threads of one engine call; 0 takes what the machine has", _whole(0, 1024)
    )
    graph_mode: str = _setting(
        "bucketed",
        "on a GPU: how passes are recorded; 'bucketed' ahead of requests for rounded lengths, 'exact' by the "
        "first request of each exact length, 'eager' not at all",
        _matching(r"eager|exact|bucketed", "eager, exact or bucketed"),
    )
    graph_entries: int = _setting(
        0, "on a GPU: recorded passes that are kept; 0: 128 bucketed or 8 exact ones", _whole(0, 4096)
    )
    matmul_mode: str = _setting(
        "invariant",
        "on a GPU: 'invariant' keeps an answer's bits independent of what shares its batch, 'fast' does not",
        _matching(r"invariant|fast", "invariant or fast"),
    )
    load_format: str = _setting(
        "auto",
        "'dummy' fills the shapes of the checkpoint's config.json with seeded weights, to measure speed",
        _matching(r"auto|dummy", "auto or dummy"),
    )
    api_key: str = _setting(
        "",
        "bearer key that clients must send; empty: no key. Prefer the variable: other users can see flags",
        _matching(r"[\x21-\x7e]*", "visible ASCII characters without spaces"),
        metavar="KEY",
        secret=True,
    )
    cors_origin: tuple[str, ...] = _setting(
        (),
        "browser origin that may call this server (repeatable); any other is refused",
        _ORIGIN,
        metavar="ORIGIN",
        repeatable=True,
    )
    queue_requests: int = _setting(
        64, "requests that may be admitted and waiting; more are refused with 529", _whole(1, 1_000_000)
    )
    queue_tokens: int = _setting(
        262144,
        "prompt tokens of all admitted and waiting requests; more are refused with 529",
        _whole(1, 1 << 40),
    )
    batch_tokens: int = _setting(
        8192, "prompt tokens that waiting requests may put together into one engine call", _whole(1, 1 << 24)
    )
    max_body_bytes: int = _setting(
        4194304, "bytes of one request body, counted after decompression", _whole(1024, 1 << 30)
    )
    max_length: int = _setting(
        0, "tokens of one candidate's prompt; 0 takes the checkpoint's own limit", _whole(0, 262144)
    )
    request_timeout: float = _setting(
        0.0, "seconds a request may wait and run before it is answered with 504; 0: no limit", _seconds(86400)
    )
    drain_seconds: float = _setting(
        30.0, "seconds that running requests get to finish after SIGTERM", _seconds(3600)
    )
    accept_any_model: bool = _setting(False, "answer requests whatever their 'model' says")
    upstream_metadata: bool = _setting(
        False, "also answer with the top-level 'metadata' object that Open-Jev's own harness reads"
    )
    literal_special_tokens: bool = _setting(
        False, "encode text that spells a special token, such as <|im_end|>, as plain text"
    )
    share_prefixes: bool = _setting(
        True, "compute tokens that several candidates share once; off is for comparison"
    )
    log_level: str = _setting(
        "info",
        "least severe message that is logged",
        _matching(r"debug|info|warning|error", "debug, info, warning or error"),
    )


def settings_table() -> tuple[Setting, ...]:
    """Every setting in the order of the fields."""
    return tuple(
        Setting(
            name=item.name,
            flag="--" + item.name.replace("_", "-"),
            env="OPENJEV_" + item.name.upper(),
            default=item.default,
            **item.metadata[_METADATA],
        )
        for item in dataclasses.fields(Settings)
    )


def add_arguments(parser: argparse.ArgumentParser, names: Iterable[str] | None = None) -> None:
    """Adds the flags of `names` (all when None) to `parser`.

    The flags keep their text: `from_args` parses it, so that a flag and a variable report a bad value alike.
    """
    wanted = None if names is None else set(names)
    group = parser.add_argument_group(
        "settings", "each has an environment variable of its name; a flag beats it"
    )
    for setting in settings_table():
        if wanted is not None and setting.name not in wanted:
            continue
        help_text = _help(setting).replace("%", "%%")
        if setting.switch:
            group.add_argument(
                setting.flag,
                dest=setting.name,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=help_text,
            )
        else:
            group.add_argument(
                setting.flag,
                dest=setting.name,
                action="append" if setting.repeatable else "store",
                default=None,
                metavar=setting.metavar or setting.name.rsplit("_", 1)[-1].upper(),
                help=help_text,
            )


def from_args(
    args: argparse.Namespace, environ: Mapping[str, str], names: Iterable[str] | None = None
) -> Settings:
    """Settings from parsed flags (missing or None: not given) and the environment. Raises SettingError.

    Only `names` (all when None) are read, the others keep their defaults: a command does not fail on a
    variable that it has no use for. An empty variable counts as unset.
    """
    wanted = None if names is None else set(names)
    values: dict[str, Any] = {}
    for setting in settings_table():
        if wanted is not None and setting.name not in wanted:
            continue
        given = getattr(args, setting.name, None)
        if given is not None:
            values[setting.name] = _from_flag(setting, given)
        elif environ.get(setting.env):
            values[setting.name] = _from_variable(setting, environ[setting.env])
    return Settings(**values)


def settings_markdown() -> str:
    """The table of docs/settings.md."""
    lines = ["| flag | variable | default | allowed | what it does |", "| --- | --- | --- | --- | --- |"]
    for setting in settings_table():
        flag = f"`{setting.flag}`" + (f", `--no-{setting.flag[2:]}`" if setting.switch else "")
        default = f"`{setting.default_text()}`" if setting.default_text() else "none"
        repeated = "; the variable takes several, separated by commas" if setting.repeatable else ""
        cells = [flag, f"`{setting.env}`", default, setting.allowed + repeated, setting.help]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _help(setting: Setting) -> str:
    default = setting.default_text() or "none"
    return f"{setting.help} ({setting.env}; default: {default})"


def _from_flag(setting: Setting, given: Any) -> Any:
    if setting.switch:
        return bool(given)
    if setting.repeatable:
        return tuple(setting.read(text, setting.flag) for text in given)
    return setting.read(given, setting.flag)


def _from_variable(setting: Setting, text: str) -> Any:
    if setting.repeatable:
        return tuple(setting.read(part.strip(), setting.env) for part in text.split(",") if part.strip())
    return setting.read(text, setting.env)
