"""A flag beats the environment, the environment beats the default, and a bad value says what is wrong."""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from openjev.settings import (
    Setting,
    SettingError,
    Settings,
    add_arguments,
    from_args,
    settings_markdown,
    settings_table,
)

DOCS = Path(__file__).parents[2] / "docs"

# A value other than the default for every setting, as a user would write it, and what it must become.
OTHER: dict[str, tuple[str, object]] = {
    "model": ("./open-jev-9b", "./open-jev-9b"),
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("8001", 8001),
    "device": ("cuda:1", "cuda:1"),
    "threads": ("3", 3),
    "graph_mode": ("exact", "exact"),
    "graph_entries": ("16", 16),
    "matmul_mode": ("fast", "fast"),
    "load_format": ("dummy", "dummy"),
    "api_key": ("s3cret", "s3cret"),
    "cors_origin": ("https://app.example", ("https://app.example",)),
    "queue_requests": ("5", 5),
    "queue_tokens": ("1000", 1000),
    "batch_tokens": ("4096", 4096),
    "max_body_bytes": ("2048", 2048),
    "max_length": ("512", 512),
    "request_timeout": ("2.5", 2.5),
    "drain_seconds": ("1.5", 1.5),
    "accept_any_model": ("yes", True),
    "upstream_metadata": ("1", True),
    "literal_special_tokens": ("true", True),
    "share_prefixes": ("off", False),
    "log_level": ("debug", "debug"),
}
BAD = {
    "port": ["-1", "65536", "80.0", "eighty", "0x50", " "],
    "device": ["gpu", "cuda:", "cuda:-1", "CPU"],
    "threads": ["-1", "1025", "two"],
    "graph_mode": ["all", "Eager"],
    "graph_entries": ["-1", "4097"],
    "matmul_mode": ["exact"],
    "load_format": ["random"],
    "api_key": ["two words", "schl\u00fcssel", "line\nbreak"],
    "cors_origin": ["app.example", "https://app.example/", "*", "https://"],
    "queue_requests": ["0"],
    "max_body_bytes": ["1023", "4MiB"],
    "request_timeout": ["-1", "nan", "inf", "soon"],
    "accept_any_model": ["maybe", "2"],
    "log_level": ["loud", "INFO"],
    "host": ["two words", "http://localhost"],
}


def parse(argv: list[str], environ: dict[str, str] | None = None) -> Settings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_args(parser.parse_args(argv), environ or {})


def flags(setting: Setting, text: str) -> list[str]:
    if not setting.switch:
        return [setting.flag, text]
    return [setting.flag if setting.read(text, "") else f"--no-{setting.flag[2:]}"]


def by_name(name: str) -> Setting:
    return next(setting for setting in settings_table() if setting.name == name)


def test_without_flags_and_variables_everything_has_its_default() -> None:
    assert parse([]) == Settings()


@pytest.mark.parametrize("setting", settings_table(), ids=lambda setting: setting.name)
def test_each_setting_has_a_flag_and_a_variable_and_the_flag_wins(setting: Setting) -> None:
    text, value = OTHER[setting.name]
    default = getattr(Settings(), setting.name)
    assert value != default

    assert setting.env == "OPENJEV_" + setting.name.upper()
    assert getattr(parse(flags(setting, text)), setting.name) == value
    assert getattr(parse([], {setting.env: text}), setting.name) == value
    if not setting.repeatable:
        undone = "off" if setting.switch and value is True else "on" if setting.switch else str(default)
        other = parse(flags(setting, text), {setting.env: undone or "x"})
        assert getattr(other, setting.name) == value


@pytest.mark.parametrize("name, text", [(name, text) for name, texts in BAD.items() for text in texts])
def test_a_bad_value_names_flag_or_variable_what_was_found_and_what_is_allowed(name: str, text: str) -> None:
    setting = by_name(name)
    sources = [(setting.env, {setting.env: text}, [])]
    if not setting.switch:
        sources.append((setting.flag, {}, [f"{setting.flag}={text}"]))
    for source, environ, argv in sources:
        with pytest.raises(SettingError) as caught:
            parse(argv, environ)
        found = "a value that is not allowed" if setting.secret else repr(text)
        assert str(caught.value) == f"{source}: found {found}, allowed: {setting.allowed}"


def test_a_secret_is_neither_repeated_in_an_error_nor_in_the_representation() -> None:
    with pytest.raises(SettingError) as caught:
        parse([], {"OPENJEV_API_KEY": "my secret"})
    assert "my secret" not in str(caught.value)
    assert "s3cret" not in repr(parse(["--api-key", "s3cret"]))


def test_an_empty_variable_counts_as_unset() -> None:
    assert parse([], {setting.env: "" for setting in settings_table()}) == Settings()


def test_a_repeatable_setting_takes_several_flags_or_one_variable_with_commas() -> None:
    origins = ("https://a.example", "http://localhost:5173")
    assert parse(["--cors-origin", origins[0], "--cors-origin", origins[1]]).cors_origin == origins
    assert parse([], {"OPENJEV_CORS_ORIGIN": " , ".join(origins)}).cors_origin == origins


def test_a_command_reads_only_the_settings_it_has_a_use_for() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, ["threads"])
    environ = {"OPENJEV_PORT": "not a port", "OPENJEV_THREADS": "2"}
    assert from_args(parser.parse_args([]), environ, ["threads"]) == Settings(threads=2)
    assert "--port" not in parser.format_help()


def test_help_shows_every_flag_with_its_variable_and_default() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    text = re.sub(r"\s+", " ", parser.format_help())
    for setting in settings_table():
        assert setting.flag in text
        assert f"({setting.env}; default: {setting.default_text() or 'none'})" in text


def test_the_table_of_the_docs_is_the_one_made_from_the_fields() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert settings_markdown() in text
    assert all(f"`{setting.env}`" in text for setting in settings_table())


def test_settings_cannot_be_changed_after_they_are_read() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


@given(port=st.integers(0, 65535), seconds=st.floats(0, 3600), model=st.text(min_size=1))
@hypothesis_settings(deadline=None)
def test_every_allowed_value_survives_the_way_through_text(port: int, seconds: float, model: str) -> None:
    environ = {"OPENJEV_PORT": str(port), "OPENJEV_DRAIN_SECONDS": repr(seconds), "OPENJEV_MODEL": model}
    assert parse([], environ) == Settings(port=port, drain_seconds=seconds, model=model)
