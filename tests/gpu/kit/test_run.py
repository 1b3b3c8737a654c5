# SPDX-License-Identifier: Apache-2.0
"""The stages of a plan: time boxes, what survives a kill, what is skipped; and the plans themselves."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import figures
import pytest
import run

REPOSITORY = run.REPOSITORY
PROGRAM = REPOSITORY / "tools/gpu/run.py"
PLANS = sorted(path.stem for path in run.PLANS.glob("*.toml"))


def plan_of(folder, *stages):
    """Writes a plan; a stage is (name, seconds, Python source, further lines)."""
    lines = ['title = "a test"']
    for name, seconds, source, *more in stages:
        command = json.dumps([sys.executable, "-c", source])
        lines += ["[[stage]]", f'name = "{name}"', f"seconds = {seconds}", f"command = {command}"]
        lines += ['question = "does it?"', *more]
    path = folder / "plan.toml"
    path.write_text("\n".join(lines))
    return path


def command(folder, plan, *options):
    (folder / "kit").mkdir(exist_ok=True)
    return [
        *(sys.executable, str(PROGRAM), str(plan), "--kit", str(folder / "kit"), "--cache", str(folder / "cache")),
        *("--out", str(folder / "out"), *map(str, options)),
    ]


def go(folder, plan, *options):
    return subprocess.run(command(folder, plan, *options), capture_output=True, text=True, timeout=100)


def records(folder):
    return [json.loads(line) for line in (folder / "out/results.jsonl").read_text().splitlines()]


def states(folder):
    return {record["stage"]: record["state"] for record in records(folder) if "state" in record}


SHOW = 'print(\'{"figure": "speed", "ms": 4.9}\', flush=True)'
SLEEP = "import time; time.sleep(60)"


def test_each_stage_runs_whatever_became_of_the_others(tmp_path):
    done = go(
        tmp_path,
        plan_of(
            tmp_path,
            ("good", 20, SHOW, 'predictions = [{ figure = "speed", field = "ms", low = 4.7, high = 5.1 }]'),
            ("bad", 20, "print('no such thing'); raise SystemExit(3)"),
            ("absent", 20, SHOW, 'needs = ["no-such-program"]'),
            ("none", 20, "print('no GPU here'); raise SystemExit(77)"),
            ("after", 20, SHOW, 'when = ["good", "speed", "ms"]'),
            ("instead", 20, SHOW, 'unless = ["good", "speed", "ms"]'),
        ),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert states(tmp_path) == {
        "good": "passed",
        "bad": "failed",
        "absent": "not run",
        "none": "skipped",
        "after": "passed",
        "instead": "not run",
    }
    why = {record["stage"]: record["why"] for record in records(tmp_path) if "state" in record}
    assert why["bad"] == "exit status 3: no such thing"
    assert why["absent"] == "not on this machine: no-such-program"
    assert why["none"] == "no GPU here"
    row = next(line for line in done.stdout.splitlines() if line.startswith("good: speed"))
    assert row.split() == ["good:", "speed", "ms", "4.9", "4.7", "to", "5.1", "as", "predicted"]
    assert "=== bad" in (tmp_path / "out/log.txt").read_text()


def test_a_stage_ends_at_its_time_and_what_it_started_ends_with_it(tmp_path):
    source = f"import subprocess, sys; {SHOW}; subprocess.Popen([sys.executable, '-c', {SLEEP!r}, 'left-by-a-stage'])"
    begin = time.monotonic()
    done = go(tmp_path, plan_of(tmp_path, ("slow", 2, f"{source}; {SLEEP}"), ("next", 20, SHOW)))
    assert time.monotonic() - begin < 40 and done.returncode == 1
    assert states(tmp_path) == {"slow": "stopped", "next": "passed"}
    assert {record["stage"] for record in records(tmp_path) if "ms" in record} == {"slow", "next"}
    left = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if b"left-by-a-stage" in readable(path)]
    assert not [path for path in left if str(tmp_path).encode() in readable(path.parent / "environ")]


def readable(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_what_was_measured_is_there_when_the_run_is_killed(tmp_path):
    plan = plan_of(tmp_path, ("first", 50, f"{SHOW}; {SLEEP}"))
    process = subprocess.Popen(command(tmp_path, plan), stdout=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 60
    while not (tmp_path / "out/results.jsonl").exists() or len(records(tmp_path)) < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
    stage = next(
        int(path.parent.name)
        for path in pathlib.Path("/proc").glob("[0-9]*/environ")
        if f"PM_CACHE={tmp_path / 'cache'}".encode() in readable(path) and int(path.parent.name) != process.pid
    )
    process.kill()
    process.wait()
    os.killpg(stage, signal.SIGKILL)  # a stage is a session of its own
    assert records(tmp_path)[1] == {"stage": "first", "figure": "speed", "ms": 4.9}


def test_a_run_that_is_told_to_end_stops_its_stage_and_prints_the_table(tmp_path):
    plan = plan_of(tmp_path, ("first", 50, f"{SHOW}; {SLEEP}"))
    process = subprocess.Popen(command(tmp_path, plan), stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (tmp_path / "out/results.jsonl").exists() or len(records(tmp_path)) < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "first: speed: ms 4.9" in output


def test_no_stage_begins_when_the_budget_is_spent(tmp_path):
    go(tmp_path, plan_of(tmp_path, ("long", 3, SLEEP), ("late", 3, SHOW)), "--budget", run.RESERVE + 4)
    assert states(tmp_path) == {"long": "stopped", "late": "not run"}


def test_the_log_keeps_its_end_and_the_table_fits(tmp_path):
    source = (
        "[print('x' * 1000) for _ in range(14000)]; print('the end of the log');"
        '[print(\'{"figure": "figure %d", "us": 1}\' % i) for i in range(700)]'
    )
    done = go(tmp_path, plan_of(tmp_path, ("loud", 60, source)))
    log = (tmp_path / "out/log.txt").read_bytes()
    assert len(log) < run.MAX_LOG + 100 and b"the end of the log" in log
    assert len(done.stdout) < 12_000 and "more figures in" in done.stdout
    assert sum("us" in record for record in records(tmp_path)) == 700


def test_one_stage_can_be_run_alone(tmp_path):
    plan = plan_of(tmp_path, ("a", 20, SHOW), ("b", 20, SHOW))
    assert go(tmp_path, plan, "--only", "b").returncode == 0 and states(tmp_path) == {"b": "passed"}
    condition = 'when = ["a", "speed", "no such value"]'
    assert go(tmp_path, plan_of(tmp_path, ("a", 20, SHOW), ("b", 20, SHOW, condition)), "--only", "b").returncode == 0
    assert states(tmp_path) == {"b": "passed"}, "a condition on a stage that is no part of the run does not count"
    assert "has no stage c" in go(tmp_path, plan, "--only", "c").stderr


def test_a_rehearsal_runs_the_other_command_and_skips_what_only_a_gpu_can_run(tmp_path):
    rehearse = f"rehearse = {json.dumps([sys.executable, '-c', 'import sys; print(sys.argv[1])', '$build/x'])}"
    plan = plan_of(tmp_path, ("both", 20, SHOW, rehearse), ("gpu", 20, SHOW))
    assert go(tmp_path, plan, "--rehearse", tmp_path / "build").returncode == 0
    assert states(tmp_path) == {"both": "passed", "gpu": "not run"}
    assert f"{tmp_path}/build/x" in (tmp_path / "out/log.txt").read_text()


@pytest.mark.parametrize(
    "line, words",
    [
        ('reads = "tea leaves"', "reads 'tea leaves'"),
        ('when = ["later", "speed", "ms"]', "no earlier stage"),
        ('predictions = [{ figure = "speed", low = 1 }]', "needs figure, field"),
    ],
)
def test_a_plan_that_no_run_could_follow_is_refused(tmp_path, line, words):
    with pytest.raises(ValueError, match=words):
        run.load_plan(str(plan_of(tmp_path, ("a", 20, SHOW, line), ("later", 20, SHOW))))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_of_the_repository_can_be_followed(name):
    title, stages = run.load_plan(name)
    values = {value: "x" for value in ("python", "kit", "out", "cache", "build", "jobs")}
    files = {"results.jsonl", "log.txt"}
    for stage in stages:
        for word in (*stage.command, *stage.rehearse):
            run.string.Template(word).substitute(values)
            if word.startswith(("tools/", "tests/", "bench/")):
                assert (REPOSITORY / word).exists(), f"{stage.name}: {word}"
            if "$out/" in word:
                files.add(word.partition("$out/")[2])
        assert stage.question.endswith("?") and 0 < stage.seconds <= 300
    assert title and len(files) <= run.MAX_FILES


def test_figures_that_are_predicted_exist():
    """The names that the kernel benchmark and the libraries' print, as far as their sources show them."""
    import libraries

    products = {f"cublas bf16 {i}->{o}, {r} row{'s' * (r > 1)}" for i, o in libraries.MATRICES for r in libraries.ROWS}
    source = (REPOSITORY / "bench/gpu_kernels/cases.cpp").read_text()
    for name in PLANS:
        for stage in run.load_plan(name)[1]:
            for figure in [prediction["figure"] for prediction in stage.predictions]:
                if figure.startswith("cublas"):
                    assert figure in products
                if figure.startswith("gemv"):
                    inputs, outputs = figure.split(",")[0].split()[-1].split("->")
                    assert f"{{{inputs}, {outputs}}}" in source, figure


def test_values_are_shown_with_four_digits():
    assert [figures.shown(value) for value in (0.71234, 4321.9, True, "NVIDIA", 12)] == [
        "0.7123",
        "4,322",
        "true",
        "NVIDIA",
        "12",
    ]
