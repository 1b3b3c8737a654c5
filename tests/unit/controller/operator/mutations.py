#!/usr/bin/env python3
"""Breaks the step machine on purpose, one place at a time, and says which test notices.

    tests/unit/controller/operator/mutations.py [--build build/release] [--only REGEX] [--again] [--every]

Each mutation of mutations.txt is made in a copy of its file; the copy is compiled and linked into test programs of its own under <build>/mutations, so neither the tree nor its
builds change. Needs a finished build of the tests (ninja). A mutation that no test notices, and that mutations.txt does not call equivalent with a reason, fails the run.
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
PROGRAMS = {"controller/operator": ["test_parallelmodel_operator"], "controller/runtime": ["test_k8s_runtime", "test_parallelmodel_operator"]}


def mutations():
    """Blocks of `# what`, `@ file`, the text as it is behind `- ` and as it becomes behind `+ `; `= why` calls it equivalent."""
    out = []
    for block in re.split(r"\n\s*\n", (HERE / "mutations.txt").read_text().strip()):
        one = {"what": "", "file": "", "old": [], "new": [], "equivalent": ""}
        for line in block.splitlines():
            mark, text = line[:1], line[2:]
            if mark == "#": one["what"] = text
            elif mark == "@": one["file"] = text
            elif mark == "-": one["old"].append(text)
            elif mark == "+": one["new"].append(text)
            elif mark == "=": one["equivalent"] = text
            else: raise SystemExit(f"mutations.txt: {line!r} begins with none of # @ - + =")
        if one["file"]: out.append(one)
    return out


def broken(one):
    source = (ROOT / one["file"]).read_text()
    old = "\n".join(one["old"])
    found = source.count(old)
    if found != 1: raise SystemExit(f"{one['what']}: {one['file']} has {found} times, and should have once:\n{old}")
    return source.replace(old, "\n".join(one["new"]))


def commands(build, target):
    return subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True).stdout.splitlines()


def play(one, build, folder, limit, every):
    folder.mkdir(parents=True, exist_ok=True)
    copy, made = folder / pathlib.Path(one["file"]).name, folder / "mutant.o"
    copy.write_text(broken(one))
    noticed = []
    for program in next(names for part, names in PROGRAMS.items() if one["file"].startswith(part)):
        lines = commands(build, f"tests/{program}")
        compile_ = next(line for line in lines if f"-c {ROOT / one['file']}" in line)
        compile_ = re.sub(r"^.*?ccache\s+", "", compile_)
        compile_ = re.sub(r"-o \S+", f"-o {made}", re.sub(r"-MF \S+", f"-MF {made}.d", compile_)).replace(f"-c {ROOT / one['file']}", f"-O1 -w -c {copy}")
        if subprocess.run(compile_, shell=True, cwd=build, capture_output=True, text=True).returncode: return ["does not compile"]
        link = next(line for line in reversed(lines) if f"-o tests/{program}" in line)
        link = link.removeprefix(": && ").removesuffix(" && :").replace(f"-o tests/{program}", f"{made} -o {folder / program}", 1)   # in front of the library that has the right one
        subprocess.run(link, shell=True, cwd=build, check=True, capture_output=True)
        try:
            ran = subprocess.run([folder / program, "--gtest_brief=1", *([] if every else ["--gtest_fail_fast=1"])], cwd=build, capture_output=True, text=True, timeout=limit, errors="replace")
            noticed += sorted(set(re.findall(r"^\[  FAILED  \] (\w+\.\w+)", ran.stdout, re.M)))
            if ran.returncode and not noticed: noticed.append(f"{program} ended with {ran.returncode}")
        except subprocess.TimeoutExpired as late:
            noticed += sorted(set(re.findall(r"^\[  FAILED  \] (\w+\.\w+)", (late.stdout or b"").decode(errors="replace"), re.M))) + [f"{program} does not end"]
        (folder / program).unlink()
        if noticed and not every: break
    return noticed


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    args.add_argument("--only", default="", help="a regular expression for \"file: words\"")
    args.add_argument("--again", action="store_true", help="also those that were noticed before")
    args.add_argument("--every", action="store_true", help="all tests that notice, not the first of each program alone")
    args.add_argument("--jobs", default=2, type=int)
    args.add_argument("--seconds", default=90, type=int, help="how long a test program may take")
    args = args.parse_args()
    build = args.build.resolve()
    folder = build / "mutations"
    folder.mkdir(exist_ok=True)
    results = folder / "results.json"
    known = json.loads(results.read_text()) if results.exists() else {}
    chosen = [(number, one) for number, one in enumerate(mutations()) if re.search(args.only, one["file"] + ": " + one["what"])]
    for _, one in chosen: broken(one)   # its place is there

    def noticed_by(entry):
        number, one = entry
        return known.get(one["what"]) if known.get(one["what"]) and not args.again else play(one, build, folder / str(number), args.seconds, args.every)

    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for (_, one), noticed in zip(chosen, pool.map(noticed_by, chosen)):
            known[one["what"]] = noticed
            results.write_text(json.dumps(known, indent=1))
            missed = not noticed or noticed == ["does not compile"]
            wrong += missed and not one["equivalent"]
            says = f"{len(noticed)}: " + ", ".join(noticed[:6]) if not missed else "equivalent: " + one["equivalent"] if one["equivalent"] else "NOBODY" if not noticed else noticed[0].upper()
            print(f"{one['file'].rsplit('/', 1)[1]:18} {one['what']:90} {says}", flush=True)
    print(f"{wrong} not noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
