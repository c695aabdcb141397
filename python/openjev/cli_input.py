"""What the commands read: texts, files and JSON, always as UTF-8 and never in the locale's encoding."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from openjev.errors import OpenJevError


class UsageError(Exception):
    """The command line itself is wrong: exit code 2."""


class InputError(OpenJevError):
    """A file or text that the user named cannot be read or is not what it should be: exit code 1."""


def read_argument(argument: str, flag: str) -> str:
    """The text that `argument` of `flag` stands for: itself, `@FILE` or `-` for standard input.

    A text that begins with "@" is written "@@...".
    """
    if argument == "-":
        return decode(read_stdin(), "standard input")
    if argument.startswith("@@"):
        return argument[1:]
    if argument.startswith("@"):
        return decode(read_file(argument[1:]), argument[1:])
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{flag}: found bytes that are not UTF-8, allowed: UTF-8 text") from None
    return argument


def read_state(argument: str) -> Any:
    """The state of a request: text, except that a file whose name ends in .json is read as JSON."""
    text = read_argument(argument, "--state")
    if argument.startswith("@") and argument[1:2] != "@" and argument.lower().endswith(".json"):
        return parse_json(text, argument[1:])
    return text


def read_stdin() -> bytes:
    return sys.stdin.buffer.read()


def read_file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise unreadable(name, error) from None
    except ValueError:
        raise InputError(f"{name!r}: found a name that no file can have") from None


@contextmanager
def opened(name: str | os.PathLike[str], mode: Literal["rb", "wb", "r+b"]) -> Iterator[IO[bytes]]:
    """The file while the block runs. Raises InputError when it cannot be opened."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(name, mode))
        except OSError as error:
            raise unreadable(os.fspath(name), error) from None
        yield file


def unreadable(name: str, error: OSError) -> InputError:
    return InputError(f"{name}: cannot be opened: {error.strerror or error}")


def decode(data: bytes, source: str) -> str:
    """UTF-8 text, without the byte order mark that some editors write."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: found a byte that is not UTF-8 at position {error.start}") from None


def parse_json(text: str, source: str) -> Any:
    """JSON under the rules of the wire: no key twice (an option would vanish), no NaN and no infinity."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise InputError(f"{source}: found the key {key!r} twice in one object, allowed: once")
            found[key] = value
        return found

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise InputError(f"{source}: found the number {number}, allowed: finite numbers")
        return value

    try:
        return json.loads(text, object_pairs_hook=unique, parse_float=finite, parse_constant=finite)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise InputError(f"{source}: found text that is not JSON at {where}: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{source}: found JSON that is nested too deeply") from None
    except ValueError:
        raise InputError(f"{source}: found a number with too many digits") from None
