"""`openjev score-demo`: a model's figures on labelled rows, as text for people and as JSON."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openjev.cli_decide import load_model
from openjev.evaluation import Gate, compare, gates, read_reference, score_labelled, write_report
from openjev.settings import Settings

_BAR = 40


def run_score_demo(args: argparse.Namespace, settings: Settings) -> int:
    """Prints figures, gates and the comparison with a reference; returns 1 when a gate is missed."""
    reference = None if args.reference is None else read_reference(args.reference)
    model = load_model(settings)
    scored = score_labelled(model, args.file, settings.batch_tokens)
    figures = scored.figures()
    checked = gates(figures)
    name = " @ ".join(filter(None, map(model.info.checkpoint.get, ("id", "revision"))))
    report: dict[str, Any] = {
        "model": name,
        "device": model.info.device,
        "figures": figures,
        "gates": [{**dataclasses.asdict(gate), "passed": gate.passed} for gate in checked],
    }
    print(f"{name} on {model.info.device}: {figures['questions']} questions")
    print("\n".join([*_figures(figures), *_reliability(figures["reliability"]), *_gates(checked)]))
    if reference is not None:
        report["reference"] = compare(scored, reference)
        print("\n".join(_comparison(report["reference"], figures["temperature"])))
    if args.out is not None:
        write_report(Path(args.out), report)
    return 0 if all(gate.passed for gate in checked) else 1


def _figures(figures: Mapping[str, Any]) -> list[str]:
    lines = ["", f"{'accuracy':<28}{'questions':>10}"]
    groups = {
        "all": {"questions": figures["questions"], "accuracy": figures["accuracy"]},
        "noul and choice": figures["noul_and_choice"],
        **{f"type {name}": group for name, group in figures["by_type"].items()},
        **{f"domain {name}": group for name, group in figures["by_domain"].items()},
    }
    for name, group in groups.items():
        if group["questions"]:
            lines.append(f"  {name:<26}{group['questions']:>10}{group['accuracy']:>9.1%}")
    lines += ["", f"{'temperature ' + format(figures['temperature'], '.4g'):<28}{'before':>10}{'after':>9}"]
    for title, name in (("Brier score", "brier"), ("expected calibration error", "ece")):
        lines.append(f"  {title:<26}{figures[name]['before']:>10.4f}{figures[name]['after']:>9.4f}")
    if figures["score_mae"] is not None:
        lines += ["", f"{'mean error of scores, levels':<28}{figures['score_mae']:>19.3f}"]
    return lines


def _reliability(bins: Sequence[Mapping[str, Any]]) -> list[str]:
    """A bar of the share that is right for each range of the top probability; "|" is where it should end."""
    lines = ["", "top probability   questions  mean   right"]
    for part in bins:
        filled = round(part["accuracy"] * _BAR)
        bar = list("#" * filled + "." * (_BAR - filled))
        bar[min(_BAR - 1, round(part["confidence"] * _BAR))] = "|"
        span = f"{part['low']:.3f} to {part['high']:.3f}"
        numbers = f"{part['count']:>10}{part['confidence']:>7.3f}{part['accuracy']:>8.3f}"
        lines.append(f"  {span:<16}{numbers}  {''.join(bar)}")
    return lines


def _gates(checked: Sequence[Gate]) -> list[str]:
    lines = ["", "gates"]
    for gate in checked:
        bound = f"{'<=' if gate.upper else '>='} {gate.limit:g}"
        verdict = "passed" if gate.passed else f"missed by {gate.missed_by:.4f}"
        lines.append(f"  {gate.name:<44}{gate.found:>8.4f}  {bound:<8}{verdict}")
    return lines


def _comparison(found: Mapping[str, Any], temperature: float) -> list[str]:
    flips = found["flips"]
    lines = [
        "",
        f"reference: {found['questions']} questions, {len(flips)} decided differently, largest difference of "
        f"a probability {found['max_probability_difference']:.2e}, "
        f"at {found['max_probability_difference_at']}",
    ]
    if found["temperature"] != temperature:
        lines.append(f"  its temperature is {found['temperature']:g}, here {temperature:g}")
    for flip in flips:
        here, there = flip["here"], flip["reference"]
        lines.append(
            f"  {flip['id']} ({flip['domain']}): {here['decision']} {here['probability']:.4f}, reference "
            f"{there['decision']} {there['probability']:.4f}, right {flip['right']}"
        )
    return lines
