#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report.py FOLDER: turns the results of tools/gpu/run.py that lie below FOLDER into a page of docs/design/evidence,
named by their date, a table of all figures beside it (.csv), and the rows of the README. `make gpu-report DIR=FOLDER`
runs it."""

import argparse
import csv
import io
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import crossover
import figures
import run

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- gpu: made by tools/gpu/report.py -->", "<!-- end of gpu -->"
CELL = 118  # characters; tests/structure allows 120
MOST_ROWS = 40  # of a table on the page: longer ones are in the .csv only
# columns of a table of figures: field, heading
COLUMNS = {
    "us": "us",
    "GBps": "GB/s",
    "of_copy": "of a copy",
    "Tflops": "Tflop/s",
    "tokens_per_second": "tokens/s",
    "ms": "ms",
    "step_ms": "ms in a step",
    "gap_ms": "ms between steps",
    "of_bandwidth": "of the bandwidth",
    "of_peak": "of the peak",
    "vs_aten": "times ATen",
    "right": "right",
}
MODEL_ROW = re.compile(r"(\S+), (.+), (batch \d+|prompt \d+)$")


def read(folder):
    """Returns the calls below a folder, in the order of their start: each has `run`, `states` and `figures`."""
    calls = []
    for path in sorted(folder.rglob("results.jsonl")):
        for line in path.read_text().splitlines():
            record = figures.parsed(line)
            if "run" in record:
                calls.append({"run": record, "states": {}, "figures": {}})
            elif "state" in record:
                calls[-1]["states"][record["stage"]] = record
            elif "figure" in record:
                calls[-1]["figures"].setdefault(record["stage"], {})[record["figure"]] = record
    return sorted(calls, key=lambda call: call["run"]["started"])


def cell(value):
    return str(value).replace("|", "/").replace("\n", " ")[:CELL].strip()


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(cell, line)) + " |" for line in lines] + [""]


def stages_part(calls):
    rows, waiting = [], []
    for call in calls:
        for name, state in call["states"].items():
            rows.append([call["run"]["plan"], name, state["state"], f"{state['seconds']:.0f}", state["why"]])
            if state["state"] not in ("passed", "failed"):
                waiting.append(f"- {call['run']['plan']}, {name}: {state['state']}, {state['why']}")
    lines = ["## Stages", *table(["call", "stage", "result", "seconds", "why"], rows)]
    return lines + (["These stages wait:", "", *waiting, ""] if waiting else [])


def predictions_part(calls):
    rows = []
    for call in calls:
        plan = run.PLANS / f"{call['run']['plan']}.toml"
        for stage in run.load_plan(str(plan))[1] if plan.exists() else ():
            if stage.name not in call["states"]:
                continue
            for prediction in stage.predictions:
                found = call["figures"].get(stage.name, {}).get(prediction["figure"])
                value, wanted, verdict = figures.judge(prediction, found)
                miss = "" if verdict in ("as predicted", "not measured") else prediction.get("if_wrong", "")
                measured = f"{prediction['field']} {figures.shown(value)}" if value is not None else "-"
                rows.append([f"{stage.name}: {prediction['figure']}", measured, wanted, verdict, miss])
    text = [
        "The predictions were made from the sources and their machine code at commit 72d8edf, before any run, for an",
        "H200 that copies 4.3 TB/s. On another GPU only those of results and of shares hold.",
    ]
    return ["## Predictions", *text, "", *table(["figure", "measured", "predicted", "verdict", "what follows"], rows)]


def crossover_part(calls):
    found = {name: figure for call in calls for stage in call["figures"].values() for name, figure in stage.items()}
    lines = []
    for weights, constant in crossover.CONSTANTS.items():
        rows = crossover.compared(found, weights)
        if rows:
            lines += [
                f"{weights}: `gemv` is not slower {crossover.summary(rows)}. This is `{constant}` of",
                "`worker/ops/cuda/backend_linear.cpp`.",
                "",
                *table(
                    ["rows", "gemv us", "cuBLAS us", "gemv is not slower for"],
                    [
                        [row["rows"], f"{row['gemv']:.1f}", f"{row['cublas']:.1f}", f"{row['wins']} of {row['of']}"]
                        for row in rows
                    ],
                ),
            ]
    text = "Sums over the matrices that both have measured. cuBLAS includes the widening of int8."
    return ["## gemv or cuBLAS", text, "", *lines] if lines else []


def measured_stages(calls):
    """Yields (plan, stage, fields, figures) of each stage that has figures with fields of COLUMNS."""
    for call in calls:
        for stage, found in call["figures"].items():
            fields = [name for name in COLUMNS if any(name in figure for figure in found.values())]
            if measured := [figure for figure in found.values() if set(fields) & set(figure)]:
                yield call["run"]["plan"], stage, fields, measured


def all_figures(calls):
    """Returns the figures of all stages as text of a .csv."""
    text = io.StringIO()
    rows = csv.DictWriter(text, ["call", "stage", "figure", *COLUMNS], restval="", lineterminator="\n")
    rows.writeheader()
    for plan, stage, fields, measured in measured_stages(calls):
        for figure in measured:
            values = {name: figure[name] for name in fields if name in figure}
            rows.writerow({"call": plan, "stage": stage, "figure": figure["figure"], **values})
    return text.getvalue()


def figures_part(calls, name):
    lines = []
    for plan, stage, fields, measured in measured_stages(calls):
        if fields == ["right"] and all(figure.get("right") for figure in measured):
            continue
        lines += [f"## {plan}: {stage}", ""]
        if len(measured) > MOST_ROWS:
            lines += [f"{len(measured)} figures: [{name}]({name}).", ""]
        else:
            lines += table(
                ["figure", *(COLUMNS[name] for name in fields)],
                [
                    [figure["figure"], *(figures.shown(figure[name]) if name in figure else "-" for name in fields)]
                    for figure in measured
                ],
            )
    return lines


def device_of(calls):
    """Returns the name of the GPU; if a stage ran nvidia-smi, with the versions that it printed."""
    found = {name: figure for call in calls for stage in call["figures"].values() for name, figure in stage.items()}
    return found.get("nvidia-smi", {}).get("answer") or found.get("device", {}).get("name") or "an unnamed GPU"


def page(calls, date):
    """Returns the text of the evidence page."""
    first = calls[0]
    device = device_of(calls)
    commit = first["run"].get("commit") or "an unknown commit"
    dirty = " with changes" if first["run"].get("dirty") else ""
    torch = (first["run"].get("torch") or {}).get("version", "unknown")
    lines = [
        f"# GPU: measured on {date}",
        f"Device: {device}. Commit: `{commit[:12]}`{dirty}. torch: {torch}.",
        "",
        "`make gpu-report` made this page from the results of `tools/gpu/run.py`. Its plans are in `tools/gpu/plans`.",
        "Times of single kernels are medians of replayed CUDA graphs. `-` means not measured.",
        "",
    ]
    figures = figures_part(calls, f"gpu-{date}.csv")
    parts = [*predictions_part(calls), *crossover_part(calls), *stages_part(calls), *figures]
    return "\n".join([*lines, *parts]).rstrip() + "\n"


def model_rows(calls):
    """Returns the rows of the README: model, what, tokens/s of each engine, our share of the limit."""
    values = {}
    for call in calls:
        for stage in call["figures"].values():
            for name, figure in stage.items():
                if row := MODEL_ROW.match(name):
                    values.setdefault((row[1], row[3]), {})[row[2]] = figure
    rows = []
    for (model, what), engines in values.items():
        ours = engines.get("ParallelModel", {})
        share = next((f"{ours[f]:.2f} of the {f[3:]}" for f in ("of_bandwidth", "of_peak") if f in ours), "-")
        rates = [
            figures.shown(engines[e]["tokens_per_second"]) if e in engines else "-"
            for e in ("ParallelModel", "HF eager", "HF static + compile")
        ]
        rows.append([model, what, *rates, share])
    return rows


def readme(text, rows, device, date, name):
    """Returns the README with the rows between its two marks. Raises ValueError where the marks are missing."""
    begin, end = text.find(BEGIN), text.find(END)
    if not 0 <= begin < end:
        raise ValueError(f"the README has no lines {BEGIN} and {END}")
    link = f"docs/design/evidence/{name}"
    body = [BEGIN, f"`bench/gpu.sh` on an {device.split(',')[0]}, {date}: tokens/s ([all figures]({link})).", ""]
    body += [
        "The limit of a batch is the time in which a copy moves the weights and the cache that a step reads. That of a",
        "prompt is the time of a large product with as many operations as its matrices need.",
        "",
    ]
    columns = list(zip(["model", "what", "ParallelModel", "HF eager", "HF compiled", "ours, of the limit"], *rows))
    head, *rows = zip(*[column for column in columns if set(column[1:]) != {"-"}])  # engines that were measured
    body += table(head, rows)
    return text[:begin] + "\n".join(body) + "\n" + text[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--into", type=pathlib.Path, default=REPOSITORY, help="repository whose pages are written")
    arguments = parser.parse_args()
    calls = [call for call in read(arguments.folder) if not call["run"]["rehearsal"]]
    if not calls:
        sys.exit(f"report.py: below {arguments.folder} is no results.jsonl of a run on a GPU")
    date = calls[0]["run"]["started"][:10]
    path = arguments.into / f"docs/design/evidence/gpu-{date}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(calls, date))
    path.with_suffix(".csv").write_text(all_figures(calls))
    print(path)
    if rows := model_rows(calls):
        front = arguments.into / "README.md"
        front.write_text(readme(front.read_text(), rows, device_of(calls), date, path.name))
        print(front)


if __name__ == "__main__":
    main()
