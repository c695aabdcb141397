"""Figures of a ledger, as SVG and PNG; both measured passes are always drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Ledger = Mapping[str, Any]
Row = Mapping[str, Any]

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")
_PASS_ALPHA = (1.0, 0.55)
_PASS_MARK = ("o", "x")
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "openjev",  # the same ledger gives the same file
    "svg.fonttype": "none",
}


def draw(ledger: Ledger, folder: Path, name: str) -> list[Path]:
    """Every figure that the ledger has rows for, as `name`-FIGURE. Returns the PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with matplotlib.rc_context(_STYLE):
        for kind, make in _FIGURES.items():
            figure = make(ledger)
            if figure is None:
                continue
            svg, png = (folder / f"{name}-{kind}.{suffix}" for suffix in ("svg", "png"))
            figure.savefig(svg, metadata={"Date": None})
            figure.savefig(png, dpi=144)
            pyplot.close(figure)
            made.append(png)
    return made


def _complete(ledger: Ledger, keep: Callable[[Row], bool]) -> Iterator[tuple[str, Row]]:
    """(arm, measurement) with both passes."""
    for arm in ledger["arms"]:
        for one in arm["measurements"]:
            if "relative_range" in one and keep(one):
                yield arm["name"], one


def _colours(ledger: Ledger) -> dict[str, str]:
    return {arm["name"]: _COLOURS[i % len(_COLOURS)] for i, arm in enumerate(ledger["plan"]["arms"])}


def _arms(ledger: Ledger) -> Figure | None:
    """Mean latency by arm, one panel a workload, one bar a pass: backends, or graph caches."""
    lowest = min((one["concurrency"] for _, one in _complete(ledger, lambda _: True)), default=0)
    found = list(_complete(ledger, lambda one: one["concurrency"] == lowest))
    arms = Counter(one["workload"] for _, one in found)
    workloads = [name for name in ledger["plan"]["workloads"] if arms[name] > 1]
    if not workloads:
        return None
    columns = min(3, len(workloads))
    rows = -(-len(workloads) // columns)
    # Never narrower than a title.
    size = (max(7.0, 4.2 * columns), 3.6 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis, workload in zip(axes.flat, workloads, strict=False):
        _bars(axis, [(arm, one) for arm, one in found if one["workload"] == workload], _colours(ledger))
        axis.set_title(workload)
        axis.set_ylabel("mean latency, ms")
    for axis in list(axes.flat)[len(workloads) :]:
        axis.set_axis_off()
    clients = f"{lowest} client" + ("s" if lowest > 1 else "")
    figure.suptitle(f"{ledger['plan']['title']}\n{clients}; left bar: pass 1, right bar: pass 2", fontsize=11)
    return figure


def _bars(axis: Axes, found: Sequence[tuple[str, Row]], colours: Mapping[str, str]) -> None:
    for place, (arm, one) in enumerate(found):
        for index, ran in enumerate(one["passes"]):
            mean = ran["figures"]["mean_ms"]
            at = place + 0.4 * (index - 0.5)
            axis.bar(at, mean, 0.38, color=colours[arm], alpha=_PASS_ALPHA[index])
            axis.annotate(f"{mean:.1f}", (at, mean), ha="center", va="bottom", fontsize=7)
    axis.set_xticks(range(len(found)), [arm for arm, _ in found], rotation=20, ha="right")
    axis.margins(y=0.12)


def _concurrency(ledger: Ledger) -> Figure | None:
    """Mean latency and throughput against the number of clients."""
    levels: dict[str, set[int]] = {}
    for _, one in _complete(ledger, lambda _: True):
        levels.setdefault(one["workload"], set()).add(one["concurrency"])
    workloads = [name for name, found in levels.items() if len(found) > 1]
    if not workloads:
        return None
    figure, axes = pyplot.subplots(
        len(workloads), 2, figsize=(9, 3.6 * len(workloads)), squeeze=False, layout="constrained"
    )
    for row, workload in zip(axes, workloads, strict=True):
        shown = (("mean_ms", "mean latency, ms"), ("requests_per_s", "requests/s"))
        for axis, (figure_name, label) in zip(row, shown, strict=True):
            _lines(axis, ledger, workload, figure_name)
            axis.set_xlabel("clients")
            axis.set_ylabel(label)
            axis.set_title(workload)
            axis.margins(y=0.1)
            axis.set_ylim(bottom=0)
            axis.set_xticks(sorted(levels[workload]))
            axis.legend(fontsize=8)
    figure.suptitle(f"{ledger['plan']['title']}\no: pass 1, x: pass 2", fontsize=11)
    return figure


def _lines(axis: Axes, ledger: Ledger, workload: str, figure: str) -> None:
    colours = _colours(ledger)
    for arm in colours:
        points = [one for name, one in _complete(ledger, lambda m: m["workload"] == workload) if name == arm]
        if not points:
            continue
        clients = [one["concurrency"] for one in points]
        for index in range(2):
            values = [one["passes"][index]["figures"][figure] for one in points]
            label = arm if index == 0 else None
            style: Any = {"color": colours[arm], "alpha": _PASS_ALPHA[index], "marker": _PASS_MARK[index]}
            axis.plot(clients, values, label=label, **style)


def _by_tokens(ledger: Ledger) -> Figure | None:
    """Latency of each request against the tokens of its prompt, over the matrix products alone."""
    single = {
        name
        for name, workload in ledger["workloads"].items()
        if all(request["prompts"] == 1 for request in workload["requests"])
        and len({request["tokens"] for request in workload["requests"]}) > 8
    }
    found = list(_complete(ledger, lambda m: m["workload"] in single and m["concurrency"] == 1))
    if not found:
        return None
    figure, axis = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for arm, one in found:
        tokens = [request["tokens"] for request in ledger["workloads"][one["workload"]]["requests"]]
        for index, ran in enumerate(one["passes"]):
            values = [row["ms"] for row in ran["requests"]]
            label = f"{arm}, {one['workload']}" if index == 0 else None
            style: Any = {"color": _colours(ledger)[arm], "marker": _PASS_MARK[index], "alpha": 0.7}
            axis.scatter(tokens, values, 16, label=label, **style)
    stack = sorted({row["tokens"]: row["stack_ms"] for row in _stack_rows(ledger)}.items())
    if stack:
        axis.plot(*zip(*stack, strict=True), color="black", linewidth=1, label="matrix products alone")
    axis.set_xscale("log")
    axis.set_yscale("log")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        scale.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        scale.set_minor_formatter(ticker.NullFormatter())
    axis.set_xlabel("tokens of the prompt")
    axis.set_ylabel("latency, ms")
    axis.legend(fontsize=8)
    axis.set_title(f"{ledger['plan']['title']}\no: pass 1, x: pass 2", fontsize=11)
    return figure


def _stack_rows(ledger: Ledger) -> Iterator[Row]:
    for native in ledger["native"]:
        for table in native.get("tables", []):
            yield from (row for row in table["rows"] if "stack_ms" in row and "tokens" in row)


def _kernels(ledger: Ledger) -> Figure | None:
    """Milliseconds of each kernel family in a pass, one panel a prompt length."""
    rows = [row for row in _kernel_rows(ledger) if row["op"] != "all"]
    lengths = sorted({row["tokens"] for row in rows})
    if not lengths:
        return None
    figure, axes = pyplot.subplots(
        1, len(lengths), figsize=(4.4 * len(lengths), 4.2), squeeze=False, layout="constrained"
    )
    for axis, tokens in zip(axes[0], lengths, strict=True):
        here = [row for row in rows if row["tokens"] == tokens and row["ms_per_pass"] > 0]
        names = [row["op"] for row in here]
        bars = axis.barh(names, [row["ms_per_pass"] for row in here], color=_COLOURS[0])
        axis.bar_label(bars, [f"{row['ms_per_pass']:.3f}" for row in here], fontsize=8, padding=2)
        axis.invert_yaxis()
        axis.margins(x=0.18)
        axis.set_xlabel("ms in a pass")
        axis.set_title(f"{tokens} tokens")
    figure.suptitle(f"{ledger['plan']['title']}: kernel families, launches x median", fontsize=11)
    return figure


def _kernel_rows(ledger: Ledger) -> list[Row]:
    return [
        row
        for native in ledger["native"]
        for table in native.get("tables", [])
        if table["title"] == "kernels"
        for row in table["rows"]
    ]


def _delta_and_http(ledger: Ledger) -> Figure | None:
    """One gated delta net call by prompt length, and what HTTP adds to the model's time."""
    delta: dict[int, float] = {}
    for row in _kernel_rows(ledger):
        if row["op"] in ("delta_inputs", "delta_rule", "gated_rms_norm"):
            delta[row["tokens"]] = delta.get(row["tokens"], 0.0) + row["us"]
    http = list(_http(ledger))
    if not http:
        return None
    panels = 2 if delta else 1
    figure, axes = pyplot.subplots(
        1, panels, figsize=(11 if delta else 8, 4.4), squeeze=False, layout="constrained"
    )
    if delta:
        _delta(axes[0][0], delta)
    axis = axes[0][-1]
    axis.boxplot([values for _, values in http], showfliers=False)
    axis.set_xticks(range(1, len(http) + 1), [label for label, _ in http], rotation=20, ha="right")
    axis.set_ylabel("latency less model time, ms")
    axis.set_ylim(bottom=0)
    axis.set_title("around the model: HTTP, JSON, tokens, queue\n(box: quartiles; each pass)", fontsize=10)
    figure.suptitle(ledger["plan"]["title"], fontsize=11)
    return figure


def _delta(axis: Axes, us: Mapping[int, float]) -> None:
    """Microseconds of a call by tokens."""
    lengths = sorted(us)
    axis.plot(lengths, [us[n] for n in lengths], marker="o", color=_COLOURS[0])
    for n in lengths:
        offset: Any = {"xytext": (4, 6), "textcoords": "offset points", "fontsize": 8}
        axis.annotate(f"{us[n]:.1f}", (n, us[n]), **offset)
    axis.set_ylim(0, 1.15 * max(us.values()))
    axis.margins(x=0.1)
    axis.set_xlabel("tokens of the prompt")
    axis.set_ylabel("us a layer")
    axis.set_title("one gated delta net call\n(inputs, rule and gated norm)", fontsize=10)


def _http(ledger: Ledger) -> Iterator[tuple[str, list[float]]]:
    """Of the arm's first workload at one client, pass by pass."""
    seen = set()
    for arm, one in _complete(ledger, lambda m: m["concurrency"] == 1):
        rows = [ran["requests"] for ran in one["passes"]]
        if arm in seen or any(row["model_ms"] is None for requests in rows for row in requests):
            continue
        seen.add(arm)
        for number, requests in enumerate(rows, 1):
            yield f"{arm}, pass {number}", [row["ms"] - row["model_ms"] for row in requests]


_FIGURES: Mapping[str, Callable[[Ledger], Figure | None]] = {
    "arms": _arms,
    "concurrency": _concurrency,
    "tokens": _by_tokens,
    "kernels": _kernels,
    "delta-http": _delta_and_http,
}
