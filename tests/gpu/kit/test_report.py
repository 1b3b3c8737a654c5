# SPDX-License-Identifier: Apache-2.0
"""Results become a page and rows of the README."""

import json
import re
import subprocess
import sys

import pytest
import report
import run

DATE = "2027-01-02"
RESULTS = [
    {
        "run": "first call",
        "plan": "first",
        "started": "2027-01-02T03:04:05+00:00",
        "rehearsal": False,
        "commit": "0123456789abcdef",
        "dirty": False,
        "torch": {"version": "2.11.0"},
    },
    {"stage": "bench", "figure": "device", "name": "NVIDIA H200"},
    {"stage": "bench", "figure": "copy", "GBps": 4310.2},
    {"stage": "bench", "figure": "gemv bf16 x f32 4096->4096, 1 row", "us": 10.1, "GBps": 3322, "of_copy": 0.77},
    {"stage": "bench", "figure": "prefill bf16 32/8 heads of 128, 2048 tokens", "us": 90, "Tflops": 190.5},
    {"stage": "bench", "state": "passed", "seconds": 61.2, "why": ""},
    {"stage": "smoke", "state": "not run", "seconds": 0, "why": "the budget is spent"},
]
MODELS = [
    {**RESULTS[0], "run": "second call", "plan": "second", "started": "2027-01-02T03:20:05+00:00"},
    {
        "stage": "ours-8b",
        "figure": "8b, ParallelModel, batch 1",
        "tokens_per_second": 204.2,
        "ms": 4.9,
        "of_bandwidth": 0.7,
    },
    {
        "stage": "eager-8b",
        "figure": "8b, HF eager, batch 1",
        "tokens_per_second": 40.5,
        "ms": 24.7,
        "of_bandwidth": 0.14,
    },
    {
        "stage": "ours-8b",
        "figure": "8b, ParallelModel, prompt 2048",
        "tokens_per_second": 26000,
        "ms": 79,
        "of_peak": 0.41,
    },
    {"stage": "ours-8b", "state": "passed", "seconds": 100, "why": ""},
]
README = f"# A project\n\nbefore\n{report.BEGIN}\nnothing yet\n{report.END}\nafter\n"


def write(folder, *calls):
    for number, call in enumerate(calls):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "results.jsonl").write_text("".join(json.dumps(record) + "\n" for record in call))
    return folder


def go(folder, into):
    into.mkdir(exist_ok=True)
    (into / "README.md").write_text(README)
    command = [sys.executable, run.REPOSITORY / "tools/gpu/report.py", folder, "--into", into]
    return subprocess.run(command, capture_output=True, text=True)


def test_results_of_several_calls_become_one_page_and_rows_of_the_readme(tmp_path):
    done = go(write(tmp_path / "results", MODELS, RESULTS), tmp_path / "repository")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "repository/docs/design/evidence" / f"gpu-{DATE}.md").read_text()
    assert "Device: NVIDIA H200. Commit: `0123456789ab`. torch: 2.11.0." in page
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    assert ["bench: gemv bf16 x f32 4096->4096, 1 row", "GBps 3,322", "3200 to 3520", "as predicted", ""] in rows
    prefill = next(row for row in rows if row[0].startswith("bench: prefill") and row[3] == "higher")
    assert prefill[1] == "Tflops 190.5" and prefill[4] == "which library takes prompts"
    assert ["first", "smoke", "not run", "0", "the budget is spent"] in rows
    assert "- first, smoke: not run, the budget is spent" in page
    assert ["gemv bf16 x f32 4096->4096, 1 row", "10.1", "3,322", "0.77", "-"] in rows
    table = (tmp_path / "repository/docs/design/evidence" / f"gpu-{DATE}.csv").read_text().splitlines()
    assert table[0].startswith("call,stage,figure,us,GBps,of_copy,Tflops")
    assert 'first,bench,"gemv bf16 x f32 4096->4096, 1 row",10.1,3322,0.77,,,,,,,,,' in table
    front = (tmp_path / "repository/README.md").read_text()
    assert "on an NVIDIA H200, 2027-01-02" in front
    assert "| 8b | batch 1 | 204.2 | 40.5 | 0.70 of the bandwidth |" in front  # nothing was measured of a third engine
    assert "| 8b | prompt 2048 | 26,000 | - | 0.41 of the peak |" in front
    assert "nothing yet" not in front and front.startswith("# A project\n\nbefore\n") and front.endswith("after\n")


def test_a_long_table_is_beside_the_page(tmp_path):
    many = [{"stage": "libraries", "figure": f"cublas {i}", "us": i} for i in range(report.MOST_ROWS + 1)]
    text = report.page(report.read(write(tmp_path, [*RESULTS, *many])), "2027-01-02")
    assert f"{len(many)} figures: [gpu-2027-01-02.csv](gpu-2027-01-02.csv)." in text and "cublas 7" not in text


def test_the_page_keeps_the_rules_of_the_docs(tmp_path):
    long = {"stage": "bench", "figure": "x" * 200, "us": 1.0, "note": "a|b"}
    wide = {"stage": "smoke", "state": "failed", "seconds": 1, "why": "w " * 200}
    text = report.page(report.read(write(tmp_path, [*RESULTS, long, wide])), "2027-01-02")
    cells = [cell.strip() for line in text.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert max(map(len, cells)) <= 120 and text.endswith("\n") and not re.search(r" +$", text, re.M)


def test_rows_replace_those_of_an_earlier_report():
    once = report.readme(README, [["8b", "batch 1", "1", "-", "-", "-"]], "NVIDIA A", "2027-01-02", "gpu-2027-01-02.md")
    again = report.readme(once, [["8b", "batch 1", "2", "-", "-", "-"]], "NVIDIA B", "2027-02-03", "gpu-2027-02-03.md")
    assert "2027-01-02" not in again and again.count(report.BEGIN) == again.count(report.END) == 1
    with pytest.raises(ValueError, match="no lines"):
        report.readme("# A project\n", [], "NVIDIA A", "2027-01-02", "gpu-2027-01-02.md")


def test_the_readme_has_the_marks():
    assert report.BEGIN in (text := (run.REPOSITORY / "README.md").read_text()) and report.END in text


def test_a_rehearsal_is_no_measurement(tmp_path):
    done = go(write(tmp_path / "results", [{**RESULTS[0], "rehearsal": True}, *RESULTS[1:]]), tmp_path / "repository")
    assert done.returncode == 1 and "no results.jsonl of a run on a GPU" in done.stderr
