"""Markdown of a ledger: every pass, every verdict, every failure; nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Ledger = Mapping[str, Any]


def markdown(ledger: Ledger, file: str) -> str:
    """The tables of one ledger; `file` is its path as seen from the page."""
    plan = ledger["plan"]
    parts = [
        f"### {plan['title']}",
        f"Ledger: [{file}]({file}) (experiment {ledger['experiment']}, {ledger['status']}, "
        f"{ledger['finished'][:10]}, plan `{ledger['plan_sha256'][:12]}`, "
        f"rows `{ledger['rows_sha256'][:12]}`). " + environment(ledger),
    ]
    parts += [f"{note}" for note in plan.get("notes", [])]
    if ledger["arms"]:
        parts += [*_versions(ledger), table(*_passes(ledger)), table(*_arms(ledger))]
    for row in ledger["native"]:
        parts += list(_native(row))
    parts.append(table(*_verdicts(ledger)))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns whose first cell is a number are aligned right."""
    if not rows:
        return ""
    marks = ["---:" if _is_number(cell) else "---" for cell in rows[0]]
    lines = [headings, marks, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def environment(ledger: Ledger) -> str:
    """One sentence about what it ran on."""
    found = ledger["environment"]
    packages = ", ".join(f"{name} {v}" for name, v in found["packages"].items() if v and name != "openjev")
    gpu = found["gpu"]
    device = (
        f"{gpu['name']}, driver {gpu['driver']}" if gpu else f"{found['cores']} cores of {found['processor']}"
    )
    return f"{device}; Python {found['python']}, {packages}; commit {found['commit']}."


def _versions(ledger: Ledger) -> Iterator[str]:
    """Of arms that run in an environment of their own; one line for all that have the same."""
    lines: dict[str, list[str]] = {}
    for arm in ledger["arms"]:
        found = ", ".join(f"{name} {v}" for name, v in arm["versions"].items() if v)
        if found:
            lines.setdefault(found, []).append(arm["name"])
    for found, arms in lines.items():
        yield f"{', '.join(arms)}: {found}."


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("%", "").replace(" / ", "").strip("-").isdigit()


def _both(measurement: Mapping[str, Any], figure: str, digits: int = 2) -> str:
    return " / ".join(number(one["figures"][figure], digits) for one in measurement["passes"])


def _published(ledger: Ledger, arm: str, measurement: Mapping[str, Any]) -> str:
    key = arm, measurement["workload"], measurement["concurrency"]
    for row in ledger["plan"].get("published", []):
        if (row["arm"], row["workload"], row["concurrency"]) == key:
            return number(row["mean_ms"])
    return "-"


def _passes(ledger: Ledger) -> tuple[list[str], list[list[str]]]:
    headings = ["arm", "workload", "clients", "mean ms, both passes", "range", "p50 ms", "p95 ms"]
    headings += ["requests/s", "decisions/s"]
    compared = bool(ledger["plan"].get("published"))
    headings += ["published mean ms"] if compared else []
    rows = []
    for arm in ledger["arms"]:
        for one in arm["measurements"]:
            if "relative_range" not in one:
                continue
            row = [arm["name"], one["workload"], str(one["concurrency"]), _both(one, "mean_ms")]
            row += [
                f"{100 * one['relative_range']['mean_ms']:.1f}%",
                _both(one, "p50_ms"),
                _both(one, "p95_ms"),
            ]
            row += [_both(one, "requests_per_s", 1), _both(one, "decisions_per_s", 1)]
            rows.append(row + ([_published(ledger, arm["name"], one)] if compared else []))
    return headings, rows


def _arms(ledger: Ledger) -> tuple[list[str], list[list[str]]]:
    """What is excluded from the passes, and what the arm took."""
    headings = [
        "arm",
        "start s",
        "first request ms",
        "peak MiB",
        "recorded passes: hits / misses",
        "error runs",
    ]
    rows = []
    for arm in ledger["arms"]:
        memory = arm.get("memory", {})
        peak = f"{number(memory.get('peak_mib'), 0)} ({memory.get('what', 'none')})"
        errors = ", ".join(f"{row['case']} {row['status']}" for row in arm["errors"]) or "-"
        first = arm.get("first_request", {}).get("ms")
        started = number(arm.get("start_s"), 1)
        rows.append([arm["name"], started, number(first), peak, _graphs(arm), errors])
        if arm["status"] != "completed":
            rows[-1][-1] = f"failed: {arm['reason'][:200]}"
    return headings, rows


def _graphs(arm: Mapping[str, Any]) -> str:
    """Of the measured passes, by workload."""
    parts = []
    for one in arm["measurements"]:
        counts = [sum(p["graphs"].get(name, 0) for p in one["passes"]) for name in ("hits", "misses")]
        if any(counts):
            parts.append(f"{one['workload']}@{one['concurrency']} {counts[0]:.0f} / {counts[1]:.0f}")
    return "; ".join(parts) or "-"


def _native(row: Mapping[str, Any]) -> Iterator[str]:
    words = " ".join(map(str, row["arguments"]))
    if row["status"] != "completed":
        yield f"`openjev-bench {words}`: failed: {row['reason']}"
        return
    yield f"`openjev-bench {words}`:"
    for found in row["tables"]:
        if len(found["rows"]) > 45:
            continue  # by request: drawn, not printed
        names = list(found["rows"][0]) if found["rows"] else []
        cells = [[_cell(each[name]) for name in names] for each in found["rows"]]
        yield table([name.replace("_", " ") for name in names], cells)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return number(value, 3)
    return "-" if value is None else str(value)


def _verdicts(ledger: Ledger) -> tuple[list[str], list[list[str]]]:
    rows = [[v["gate"], v["verdict"], _found(v["found"])] for v in ledger["verdicts"]]
    return ["gate", "verdict", "found"], rows


def _found(found: Mapping[str, Any]) -> str:
    parts = []
    for name, value in found.items():
        if isinstance(value, bool) or value in ("", []):
            shown = "" if value in ("", []) else f"{name} {'yes' if value else 'no'}"
        elif isinstance(value, float):
            shown = f"{name} {value:.4g}"
        elif isinstance(value, list):
            shown = f"{name} " + " / ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in value)
        else:
            shown = f"{name} {value}"
        if shown:
            parts.append(shown.replace("_", " "))
    return ", ".join(parts)


def replace_block(text: str, name: str, block: str) -> str:
    """`text` with the block between the markers of `name` replaced, or added at the end."""
    begin, end = f"<!-- begin {name}: made by bench/report.py -->", f"<!-- end {name} -->"
    whole = f"{begin}\n{block.strip()}\n{end}"
    if begin in text and end in text:
        head, _, rest = text.partition(begin)
        return head + whole + rest.partition(end)[2]
    return text.rstrip("\n") + f"\n\n{whole}\n"
