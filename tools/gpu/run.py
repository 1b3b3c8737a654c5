#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the stages of a plan on a machine with a GPU: run.py PLAN --budget SECONDS --out FOLDER. It needs nothing but
Python and the kit that tools/gpu/pack.sh made.

A plan is a file of tools/gpu/plans, or its name. Stages run in the order of the plan, each for at most its seconds and
at most what is left of the budget. A stage that fails or is stopped ends no other. Each figure is written to
FOLDER/results.jsonl as soon as it is printed, so that a run that is killed keeps its figures. FOLDER has at most
eight files. The last lines that are printed are a table; the exit status is the number of stages that failed.

--rehearse BUILD runs the plan without a GPU, with the programs of a build folder on the fake device and the emulation:
stages that only a GPU can run are skipped by name.
"""

import argparse
import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import string
import subprocess
import sys
import tarfile
import threading
import time
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import figures

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PLANS = pathlib.Path(__file__).resolve().parent / "plans"
MAX_FILES, MAX_BYTES, MAX_LOG = 8, 15 << 20, 8 << 20  # of results: what a remote runner may carry back
RESERVE = 5  # seconds at the end for the table
TABLE = 10_000  # characters: a remote runner may show only the end of the output
SKIPPED = 77  # exit status of a stage that cannot run here; its last line says why
# where toolkits keep nvcc, compute-sanitizer and ncu
TOOL_FOLDERS = ["/usr/local/cuda/bin", *sorted(map(str, pathlib.Path("/").glob("opt/nvidia/nsight-compute/*")))]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of a plan. `when` and `unless` name a figure of an earlier stage ("stage: figure") and its field."""

    name: str
    seconds: float
    command: tuple
    question: str
    reads: str = "lines"
    rehearse: tuple = ()  # the command on the fake device; none: only a GPU can run it
    needs: tuple = ()  # programs that a machine may not have
    when: tuple = ()
    unless: tuple = ()
    environment: dict = dataclasses.field(default_factory=dict)
    predictions: tuple = ()


def load_plan(name):
    """Returns (title, stages) of a plan. Raises ValueError for a plan that no run could follow."""
    path = pathlib.Path(name) if name.endswith(".toml") else PLANS / f"{name}.toml"
    plan = tomllib.loads(path.read_text())
    stages = [Stage(**{key: tuple(v) if isinstance(v, list) else v for key, v in one.items()}) for one in plan["stage"]]
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: two stages have one name")
    for stage in stages:
        if stage.reads not in figures.READERS:
            raise ValueError(f"{path}: stage {stage.name} reads {stage.reads!r}; there are {sorted(figures.READERS)}")
        for condition in (stage.when, stage.unless):
            if condition and condition[0] not in names[: names.index(stage.name)]:
                raise ValueError(f"{path}: stage {stage.name} refers to {condition[0]!r}, which is no earlier stage")
        for prediction in stage.predictions:
            if not {"figure", "field"} <= set(prediction) or not {"low", "high", "is"} & set(prediction):
                raise ValueError(f"{path}: a prediction of {stage.name} needs figure, field, and low, high or is")
    return plan["title"], stages


class Results:
    """The folder of results. Everything is flushed as it is written, and is on the disk within a second or by the end
    of its stage: a sync for each of hundreds of figures would hold up the program that prints them."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lines = open(folder / "results.jsonl", "a")
        self.log = open(folder / "log.txt", "a")
        self.figures, self.states, self.synced = {}, [], 0

    def write(self, record, sync=True):
        self.lines.write(json.dumps(record) + "\n")
        self.lines.flush()
        if sync or time.monotonic() > self.synced + 1:
            os.fsync(self.lines.fileno())
            self.synced = time.monotonic()

    def figure(self, stage, figure):
        self.figures[stage, figure["figure"]] = figure
        self.write({"stage": stage, **figure}, sync=False)

    def end(self, stage, state, seconds, why=""):
        self.states.append((stage, state, seconds, why))
        self.write({"stage": stage, "state": state, "seconds": round(seconds, 1), "why": why})
        print(f"{stage:16} {state:10} {seconds:6.1f} s  {why}"[:160], flush=True)

    def say(self, text):
        """Appends to the log, of which the last 8 MiB stay."""
        self.log.write(text)
        self.log.flush()
        if self.log.tell() > MAX_LOG + (4 << 20):
            self._keep_end(self.folder / "log.txt", MAX_LOG)
            self.log = open(self.folder / "log.txt", "a")

    @staticmethod
    def _keep_end(path, size):
        content = path.read_bytes()
        if len(content) > size:
            path.write_bytes(b"(the beginning is left out)\n" + content[-size:])

    def close(self):
        """Makes the folder one that a remote runner carries back: at most eight files of limited size."""
        self.log.close()
        self.lines.close()
        self._keep_end(self.folder / "log.txt", MAX_LOG)
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        for path in files:
            self._keep_end(path, MAX_BYTES)
        if len(files) > MAX_FILES:
            print(f"{self.folder} has {len(files)} files; a remote runner may carry back only {MAX_FILES}")


def stop(process):
    """Ends a stage with everything that it started, first gently, so that device memory is released."""
    for number, patience in ((signal.SIGTERM, 4), (signal.SIGKILL, 4)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def run_stage(stage, command, seconds, environment, results):
    """Runs a command for at most so many seconds. Returns (state, why)."""
    reader, last, lines = figures.READERS[stage.reads](), "", 0

    def read(stream):
        nonlocal last, lines
        for line in stream:
            results.say(line)
            last, lines = line.strip() or last, lines + 1
            for figure in reader.feed(line.rstrip("\n")):
                results.figure(stage.name, figure)

    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=REPOSITORY,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return "failed", str(error)
    thread = threading.Thread(target=read, args=(process.stdout,), daemon=True)
    thread.start()
    try:
        process.wait(seconds)
        stopped = False
    except subprocess.TimeoutExpired:
        stopped = True
    finally:
        stop(process)  # also what the stage left running
        for _ in range(12):  # what is left in the pipe; but a process in a session of its own may hold it
            before = lines
            thread.join(5)
            if not thread.is_alive() or lines == before:
                break
        for figure in reader.end():
            results.figure(stage.name, figure)
    tests = results.figures.get((stage.name, "tests"), {})
    if stopped:
        return "stopped", f"its {seconds:.0f} s were over"
    if process.returncode == SKIPPED or tests and not tests["passed"] and not tests["failed"] and tests["skipped"]:
        return "skipped", reader.why_skipped or last
    if process.returncode:
        return "failed", ", ".join(tests.get("names_of_failed", [])) or f"exit status {process.returncode}: {last}"
    if not tests:
        return "passed", ""
    skipped = f", {tests['skipped']} skipped: {reader.why_skipped}" if tests["skipped"] else ""
    return "passed", f"{tests['passed']} tests{skipped}"


def kit_folder(kit):
    """Returns the folder of the kit, which is unpacked once where `kit` is an archive."""
    if kit.is_dir():
        return kit
    with open(kit, "rb") as archive:
        folder = REPOSITORY / "build/kit-unpacked" / hashlib.file_digest(archive, "sha256").hexdigest()[:16]
    if not folder.exists():
        partial = folder.with_name(f".{folder.name}")
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(kit) as archive:
            archive.extractall(partial, filter="tar")
        partial.rename(folder)
    return folder / "kit"


def cache_folder():
    """Returns a folder for checkpoints of 20 GB: in memory where there is room, else below the build folder."""
    memory = pathlib.Path("/dev/shm")
    with contextlib.suppress(OSError):
        if shutil.disk_usage(memory).free > 48 << 30:
            return memory / "parallelmodel"
    return REPOSITORY / "build/kit-cache"


def settings(arguments, kit, manifest):
    """Returns (values for the commands of stages, environment of stages)."""
    rehearsed = arguments.rehearse and arguments.rehearse.resolve()
    cache = (arguments.cache or cache_folder()).resolve()
    (cache / "oracle").mkdir(parents=True, exist_ok=True)
    values = {
        "python": sys.executable,
        "kit": str(kit),
        "out": str(arguments.out.resolve()),
        "cache": str(cache),
        "build": str(rehearsed or ""),
        "jobs": str(min(8, os.cpu_count() or 1)),
    }
    if (kit / "oracle").is_dir():
        shutil.copytree(kit / "oracle", cache / "oracle", dirs_exist_ok=True)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *TOOL_FOLDERS]),
        "PM_CACHE": str(cache),
        "PM_PYTHON": sys.executable,
        "PM_KIT": str(kit),
        "PM_WORKER": str(rehearsed / "bin/parallelmodel-worker" if rehearsed else kit / "bin/parallelmodel-worker"),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }
    if key := manifest.get("oracle_key"):
        environment["PM_ORACLE_KEY"] = key
    if rehearsed:
        environment["PM_GPU_REHEARSE"] = "short"
    return values, environment


def holds(condition, results):
    """Returns whether the figure that a condition names ("stage", "figure", "field") has a value that is not 0; None
    where its stage is no part of this run."""
    stage, figure, field = condition
    if stage not in (name for name, _, _, _ in results.states):
        return None
    return bool(results.figures.get((stage, figure), {}).get(field))


def why_not(stage, arguments, environment, left, results):
    """Returns why a stage cannot run now; empty: it can."""
    if left < min(10, stage.seconds):
        return "the budget is spent"
    if arguments.rehearse and not stage.rehearse:
        return "only a GPU can run it"
    if stage.when and holds(stage.when, results) is False:
        return f"not so: {', '.join(stage.when)}"
    if stage.unless and holds(stage.unless, results):
        return f"not needed: {', '.join(stage.unless)}"
    missing = [name for name in stage.needs if not shutil.which(name, path=environment["PATH"])]
    return f"not on this machine: {', '.join(missing)}" if missing else ""


def print_tables(title, stages, results, seconds):
    """Prints states, predicted figures beside their predictions, and as many other figures as fit."""
    print(f"\n{title}: {len(results.states)} stages in {seconds:.0f} s")
    lines = [f"{name:16} {state:10} {took:6.1f} s  {why}"[:160] for name, state, took, why in results.states]
    predicted, rows = set(), []
    ran = {name for name, state, _, _ in results.states if state not in ("not run", "skipped")}
    for stage in stages:
        for prediction in stage.predictions if stage.name in ran else ():
            found = results.figures.get((stage.name, prediction["figure"]))
            value, wanted, verdict = figures.judge(prediction, found)
            predicted.add((stage.name, prediction["figure"]))
            measured = "-" if value is None else f"{prediction['field']} {figures.shown(value)}"
            rows.append((f"{stage.name}: {prediction['figure']}", measured, wanted, verdict))
    if rows:
        lines += ["", *figures.table([("figure", "measured", "predicted", ""), *rows], (66, 16, 14))]
    lines.append("")
    rest = [
        f"{stage}: {name}: {figures.summary(figure)}"[:150]
        for (stage, name), figure in results.figures.items()
        if (stage, name) not in predicted
    ]
    room = TABLE - sum(len(line) + 1 for line in lines)
    for count, line in enumerate(rest):
        room -= len(line) + 1
        if room < 60:
            lines.append(f"and {len(rest) - count} more figures in {results.folder / 'results.jsonl'}")
            break
        lines.append(line)
    print("\n".join(lines), flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("--budget", type=float, default=540, help="seconds for all stages")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", "build/kit-results")))
    parser.add_argument("--kit", type=pathlib.Path, default=REPOSITORY / "build/kit.tar.xz", help="archive or folder")
    parser.add_argument("--cache", type=pathlib.Path, help="folder of checkpoints; in memory where there is room")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="stages to run")
    parser.add_argument("--rehearse", type=pathlib.Path, metavar="BUILD")
    return parser.parse_args()


def main():
    arguments, begin = parse(), time.monotonic()
    title, stages = load_plan(arguments.plan)
    if unknown := set(arguments.only) - {stage.name for stage in stages}:
        sys.exit(f"run.py: {arguments.plan} has no stage {', '.join(sorted(unknown))}")
    if not arguments.kit.exists() and not arguments.rehearse:
        sys.exit(f"run.py: {arguments.kit} does not exist; tools/gpu/pack.sh makes it")
    kit = kit_folder(arguments.kit.resolve()) if arguments.kit.exists() else REPOSITORY / "build/no-kit"
    manifest = json.loads((kit / "manifest.json").read_text()) if (kit / "manifest.json").exists() else {}
    results = Results(arguments.out)
    values, environment = settings(arguments, kit, manifest)
    results.write(
        {
            "run": title,
            "plan": re.sub(r"\.toml$", "", pathlib.Path(arguments.plan).name),
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "budget": arguments.budget,
            "rehearsal": bool(arguments.rehearse),
            **{name: manifest.get(name) for name in ("commit", "dirty", "torch")},
        }
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("run.py: stopped"))  # a stage is stopped on the way out
    try:
        for stage in stages:
            if arguments.only and stage.name not in arguments.only:
                continue
            at, left = time.monotonic(), begin + arguments.budget - RESERVE - time.monotonic()
            if why := why_not(stage, arguments, environment, left, results):
                results.end(stage.name, "not run", 0, why)
                continue
            command = stage.rehearse if arguments.rehearse else stage.command
            command = [string.Template(word).substitute(values) for word in command]
            results.say(f"\n=== {stage.name}: {' '.join(command)}\n")
            state, why = run_stage(
                stage, command, min(stage.seconds, left), {**environment, **stage.environment}, results
            )
            results.end(stage.name, state, time.monotonic() - at, why)
    finally:
        print_tables(title, stages, results, time.monotonic() - begin)
        results.close()
    sys.exit(sum(state in ("failed", "stopped") for _, state, _, _ in results.states))


if __name__ == "__main__":
    main()
