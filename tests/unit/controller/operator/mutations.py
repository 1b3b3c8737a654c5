#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs mutation tests of the operator: makes each mutant of mutations.txt and reports which tests kill it.

    tests/unit/controller/operator/mutations.py [--build build/release] [--only REGEX] [--again] [--every]

Each mutation is applied to a copy of its file; the copy is compiled and linked into test programs of its own under
<build>/mutations, so neither the tree nor its builds change. It needs a finished build of the tests (ninja). A
surviving
mutant fails the run, unless mutations.txt calls it equivalent and gives a reason.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
PROGRAMS = {
    "controller/operator": ["test_parallelmodel_operator"],
    "controller/runtime": ["test_k8s_runtime", "test_parallelmodel_operator"],
}


def mutations():
    """Parses blocks of `# description`, `@ file`, the original text after `- ` and the mutated text after `+ `.

    `= reason` marks an equivalent mutant."""
    out = []
    for block in re.split(r"\n\s*\n", (HERE / "mutations.txt").read_text().strip()):
        one = {"what": "", "file": "", "old": [], "new": [], "equivalent": ""}
        for line in block.splitlines():
            mark, text = line[:1], line[2:]
            if mark == "#":
                one["what"] = text
            elif mark == "@":
                one["file"] = text
            elif mark == "-":
                one["old"].append(text)
            elif mark == "+":
                one["new"].append(text)
            elif mark == "=":
                one["equivalent"] = text
            else:
                raise SystemExit(f"mutations.txt: {line!r} begins with none of # @ - + =")
        if one["file"]:
            out.append(one)
    return out


def mutant(one):
    """Returns the mutated source. White space does not count in the search, so reformatting breaks no mutation."""
    source = (ROOT / one["file"]).read_text()
    old = "\n".join(one["old"])
    pattern = r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", old)))
    found = list(re.finditer(pattern, source))
    if len(found) != 1:
        raise SystemExit(f"{one['what']}: {one['file']} has this text {len(found)} times, expected once:\n{old}")
    return source[: found[0].start()] + "\n".join(one["new"]) + source[found[0].end() :]


def commands(build, target):
    return subprocess.run(
        ["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True
    ).stdout.splitlines()


def run(one, build, folder, limit, every):
    folder.mkdir(parents=True, exist_ok=True)
    copy, object_file = folder / pathlib.Path(one["file"]).name, folder / "mutant.o"
    copy.write_text(mutant(one))
    killers = []
    for program in next(names for part, names in PROGRAMS.items() if one["file"].startswith(part)):
        lines = commands(build, f"tests/{program}")
        compile_ = next(line for line in lines if f"-c {ROOT / one['file']}" in line)
        compile_ = re.sub(r"^.*?ccache\s+", "", compile_)
        compile_ = re.sub(r"-o \S+", f"-o {object_file}", re.sub(r"-MF \S+", f"-MF {object_file}.d", compile_)).replace(
            f"-c {ROOT / one['file']}", f"-O1 -w -c {copy}"
        )
        if subprocess.run(compile_, shell=True, cwd=build, capture_output=True, text=True).returncode:
            return ["does not compile"]
        link = next(line for line in reversed(lines) if f"-o tests/{program}" in line)
        link = (
            link.removeprefix(": && ")
            .removesuffix(" && :")
            .replace(f"-o tests/{program}", f"{object_file} -o {folder / program}", 1)
        )  # it comes before the library with the original
        subprocess.run(link, shell=True, cwd=build, check=True, capture_output=True)
        try:
            ran = subprocess.run(
                [folder / program, "--gtest_brief=1", *([] if every else ["--gtest_fail_fast=1"])],
                cwd=build,
                capture_output=True,
                text=True,
                timeout=limit,
                errors="replace",
            )
            killers += sorted(set(re.findall(r"^\[  FAILED  \] (\w+\.\w+)", ran.stdout, re.MULTILINE)))
            if ran.returncode and not killers:
                killers.append(f"{program} ended with {ran.returncode}")
        except subprocess.TimeoutExpired as late:
            killers += sorted(
                set(
                    re.findall(
                        r"^\[  FAILED  \] (\w+\.\w+)", (late.stdout or b"").decode(errors="replace"), re.MULTILINE
                    )
                )
            ) + [f"{program} does not end"]
        (folder / program).unlink()
        if killers and not every:
            break
    return killers


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    args.add_argument("--only", default="", help='a regular expression for "file: words"')
    args.add_argument("--again", action="store_true", help="also run mutants that were killed before")
    args.add_argument(
        "--every",
        action="store_true",
        help="report all tests that kill a mutant, not only the first of each program",
    )
    args.add_argument("--jobs", default=2, type=int)
    args.add_argument("--seconds", default=90, type=int, help="time limit of a test program")
    args = args.parse_args()
    build = args.build.resolve()
    folder = build / "mutations"
    folder.mkdir(exist_ok=True)
    results = folder / "results.json"
    known = json.loads(results.read_text()) if results.exists() else {}
    chosen = [
        (number, one)
        for number, one in enumerate(mutations())
        if re.search(args.only, one["file"] + ": " + one["what"])
    ]
    for _, one in chosen:
        mutant(one)  # fails if its text is not found

    def killed_by(entry):
        number, one = entry
        return (
            known.get(one["what"])
            if known.get(one["what"]) and not args.again
            else run(one, build, folder / str(number), args.seconds, args.every)
        )

    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for (_, one), killers in zip(chosen, pool.map(killed_by, chosen)):
            known[one["what"]] = killers
            results.write_text(json.dumps(known, indent=1))
            missed = not killers or killers == ["does not compile"]
            wrong += missed and not one["equivalent"]
            says = (
                f"{len(killers)}: " + ", ".join(killers[:6])
                if not missed
                else "equivalent: " + one["equivalent"]
                if one["equivalent"]
                else "SURVIVED"
                if not killers
                else killers[0].upper()
            )
            print(f"{one['file'].rsplit('/', 1)[1]:18} {one['what']:90} {says}", flush=True)
    print(f"{wrong} surviving mutants")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
