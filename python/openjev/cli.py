"""The `openjev` command.

Exit codes: 0 done, 1 a request, file, checkpoint or device was bad, 2 the command line was. Results go to
standard output, everything else to standard error; both are UTF-8 whatever the locale says.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from openjev import settings as settings_module
from openjev.cli_bench import run_bench
from openjev.cli_checkpoints import run_export, run_pull, run_verify
from openjev.cli_decide import MODEL_SETTINGS, run_decide
from openjev.cli_info import run_info
from openjev.cli_input import InputError, UsageError
from openjev.cli_score import run_score
from openjev.cli_score_demo import run_score_demo
from openjev.doctor import run_doctor, version
from openjev.errors import OpenJevError
from openjev.settings import SettingError, Settings

Command = Callable[[argparse.Namespace, Settings], int]

EXIT_DONE = 0
EXIT_BAD = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Runs one command and returns its exit code. `argv` is without the program's name."""
    _use_utf8()
    arguments = sys.argv[1:] if argv is None else argv
    args = _parser().parse_args([_utf8(argument) for argument in arguments])
    try:
        names: Sequence[str] | None = args.settings
        settings = settings_module.from_args(args, os.environ if environ is None else environ, names)
        command: Command = args.command
        code = command(args, settings)
        sys.stdout.flush()
        return code
    except (SettingError, UsageError) as error:
        return _fail(str(error), EXIT_USAGE)
    except OpenJevError as error:
        return _fail(str(error), EXIT_BAD)
    except ImportError as error:
        # Only the native library's absence is a fact about the machine; any other is a fault of ours.
        if error.name != "openjev._runtime":
            raise
        return _fail(str(error), EXIT_BAD)
    except BrokenPipeError:
        # The reader of our output has left: nobody to tell.
        _drop_output()
        return EXIT_BAD
    except OSError as error:
        _drop_output()
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}", EXIT_BAD)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _fail(message: str, code: int) -> int:
    print("openjev: error: " + " ".join(message.split()), file=sys.stderr)
    return code


def _drop_output() -> None:
    """Lets what is still buffered for stdout go nowhere: Python would try and complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _use_utf8() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")


def _utf8(argument: str) -> str:
    """The argument's bytes read as UTF-8: Python has decoded them with the locale's encoding."""
    return os.fsencode(argument).decode("utf-8", "surrogateescape")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage as well."""
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="openjev", description="Serve and run open decision models.")
    parser.add_argument("--version", action="version", version=f"openjev {version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, command: Command, summary: str, example: str, names: Sequence[str] | None) -> _Parser:
        sub: _Parser = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog="example:\n" + example,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=command, settings=names)
        return sub

    _add_serve(add)
    _add_decide(add)
    _add_score(add)
    _add_score_demo(add)
    _add_info(add)
    _add_checkpoints(add)
    add(
        "doctor",
        run_doctor,
        "say what works on this machine and why the rest does not",
        "  openjev doctor",
        (),
    )
    # Its own help and options are the binary's.
    bench = add("bench", run_bench, "measure speed with openjev-bench", "  openjev bench forward --help", ())
    bench.add_argument("arguments", nargs=argparse.REMAINDER, help="what openjev-bench is called with")
    return parser


def _add_serve(add: Callable[..., _Parser]) -> None:
    example = "  openjev serve ./open-jev-9b --port 8000\n  openjev serve ZefanCai/Open-Jev-9B"
    sub = add("serve", _run_serve, "answer System One requests over HTTP", example, None)
    sub.add_argument("checkpoint", nargs="?", metavar="PATH|NAME", help="the same as --model")
    settings_module.add_arguments(sub)


def _add_decide(add: Callable[..., _Parser]) -> None:
    example = (
        "  openjev decide --state 'My parcel is late.' --noul 'Is the customer unhappy?'\n"
        '  openjev decide --state @mail.txt --questions \'{"team": {"type": "choice",\n'
        '      "instructions": "Who handles it?", "criteria": {"billing": null, "shipping": null}}}\''
    )
    sub = add("decide", run_decide, "answer questions about one state", example, MODEL_SETTINGS)
    sub.add_argument(
        "--state",
        required=True,
        metavar="TEXT|@FILE|-",
        help="what is known: a text, a file (JSON when its name ends in .json) or standard input",
    )
    sub.add_argument(
        "--questions",
        metavar="JSON|@FILE",
        help="the questions as in a request: an object of question id to question",
    )
    sub.add_argument(
        "--noul",
        action="append",
        default=[],
        metavar="TEXT",
        help="a yes/no question, with the id q1, q2, ... (repeatable)",
    )
    settings_module.add_arguments(sub, MODEL_SETTINGS)


def _add_score(add: Callable[..., _Parser]) -> None:
    names = (*MODEL_SETTINGS, "batch_tokens")
    example = (
        "  openjev score mails.csv --questions questions.json --state body --id number --out answers.csv\n"
        "  openjev score requests.jsonl --out answers.jsonl"
    )
    sub = add("score", run_score, "answer a file, one row of answers for each of its rows", example, names)
    sub.add_argument("file", metavar="FILE", help="CSV or JSON Lines; - reads standard input")
    sub.add_argument(
        "--format", choices=("csv", "jsonl"), help="of FILE (default: csv for *.csv, else jsonl)"
    )
    sub.add_argument(
        "--questions",
        metavar="Q.json",
        help="the questions about every row, as in a request; without it each row is a request, "
        '{"id"?, "state", "questions"}',
    )
    sub.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="FIELD",
        help="the field that is the state; given several times, an object of them (default: the whole row)",
    )
    sub.add_argument("--id", metavar="FIELD", help="the field that the answer repeats as its id")
    sub.add_argument(
        "--out",
        metavar="OUT",
        help="where the answers go: CSV for *.csv, else JSON Lines (default: stdout). "
        "An interrupted run is taken up by the same command",
    )
    sub.add_argument("--overwrite", action="store_true", help="write OUT anew, whatever it holds")
    settings_module.add_arguments(sub, names)


def _add_score_demo(add: Callable[..., _Parser]) -> None:
    names = (*MODEL_SETTINGS, "batch_tokens")
    summary = "measure a model on labelled rows; exit code 1 when it misses a gate"
    example = "  openjev score-demo test.jsonl --reference test_logits.json --out report.json"
    sub = add("score-demo", run_score_demo, summary, example, names)
    sub.add_argument(
        "file", metavar="FILE", help='JSON Lines of {"id", "domain", "state", "question", "label"}'
    )
    sub.add_argument(
        "--reference",
        metavar="LOGITS.json",
        help='{"temperature", "logits"} of the same rows by another implementation, to compare with',
    )
    sub.add_argument("--out", metavar="REPORT.json", help="also write every figure as JSON")
    settings_module.add_arguments(sub, names)


def _add_info(add: Callable[..., _Parser]) -> None:
    sub = add(
        "info", run_info, "describe a checkpoint without loading it", "  openjev info ./open-jev-9b", ()
    )
    sub.add_argument(
        "checkpoint", metavar="PATH|NAME", help="an export folder, or the name of a known checkpoint"
    )
    sub.add_argument("--json", action="store_true", help="print JSON")


def _add_checkpoints(add: Callable[..., _Parser]) -> None:
    summary = "download what a known checkpoint needs, at its pinned revisions"
    sub = add("pull", run_pull, summary, "  openjev pull open-jev-9b", ())
    sub.add_argument("name", metavar="NAME", help="a known name, or its id on the hub")

    example = "  openjev export Qwen/Qwen3.5-9B ZefanCai/Open-Jev-9B ./open-jev-9b"
    sub = add(
        "export", run_export, "merge an adapter into its base and write the folder", example, ("threads",)
    )
    sub.add_argument("base", metavar="BASE", help="the base's folder, or its id on the hub")
    sub.add_argument("adapter", metavar="ADAPTER", help="the package's folder, or the name of a known one")
    sub.add_argument("out", metavar="OUT", help="the folder to write; an interrupted export is resumed")
    sub.add_argument("--compat", action="store_true", help="also write open_jev_export.json")
    settings_module.add_arguments(sub, ("threads",))

    sub = add(
        "verify", run_verify, "read a checkpoint to its last byte", "  openjev verify ./open-jev-9b", ()
    )
    sub.add_argument(
        "checkpoint", metavar="PATH|NAME", help="a folder, or a known checkpoint that was pulled"
    )


def _run_serve(args: argparse.Namespace, settings: Settings) -> int:
    """The server is an optional part above this package, so it is looked up by name and only here."""
    if args.checkpoint is not None:
        if args.model is not None:
            raise UsageError(f"found {args.checkpoint} and --model {args.model}, allowed: one of the two")
        settings = dataclasses.replace(settings, model=args.checkpoint)
    try:
        app = importlib.import_module("openjev_server.app")
    except ModuleNotFoundError as error:
        raise InputError(
            f"serve: found no module {error.name}, needed: pip install 'openjev[server]'"
        ) from None
    return int(app.run(settings) or EXIT_DONE)
