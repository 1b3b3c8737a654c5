"""The house rules that a compiler does not check: include directions, what may be included where, sizes of files."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# what a folder may include beside itself (DESIGN.md 2); planner is pure and may be used by both programs
BELOW = {
    "planner": set(),
    "worker/base": {"planner"},
    "worker/checkpoint": {"planner", "worker/base"},
    "worker/hub": {"planner", "worker/base", "worker/checkpoint"},
    "worker/tokenizer": {"worker/base"},
    "worker/image": {"worker/base"},
    "worker/comm": {"worker/base"},
    "worker/policy": {"planner", "worker/base", "worker/checkpoint"},
    "worker/ops": {"worker/base"},
    "worker/layers": {"planner", "worker/base", "worker/checkpoint", "worker/policy", "worker/comm", "worker/ops"},
    "worker/models": {"planner", "worker/base", "worker/policy", "worker/layers"},
    "worker/parallel": {"planner", "worker/base", "worker/policy", "worker/comm", "worker/ops", "worker/layers", "worker/models"},
    "worker/engine": {"planner", "worker/base", "worker/checkpoint", "worker/policy", "worker/comm", "worker/ops", "worker/layers", "worker/parallel"},
    "worker/launch": {"worker/base", "worker/comm"},
    "worker/server": {"planner", "worker/base", "worker/comm", "worker/tokenizer", "worker/image", "worker/policy", "worker/engine"},
    "controller/core": set(),
    "controller/client": {"controller/core"},
    "controller/runtime": {"controller/core", "controller/client"},
    "controller/operator": {"planner", "controller/core", "controller/client", "controller/runtime"},
}
SOURCES = [p for top in ("planner", "worker", "controller") for p in (ROOT / top).rglob("*") if p.suffix in {".cpp", ".h", ".cu"}]


def includes(path):
    return re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)


def folder_of(name):
    return next((f for f in sorted(BELOW, key=len, reverse=True) if name.startswith(f + "/")), None)


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_includes_only_what_lies_below_it(folder):
    wrong = [f"{path.relative_to(ROOT)} includes {name}" for path in SOURCES if folder_of(str(path.relative_to(ROOT))) == folder
             for name in includes(path) if folder_of(name) not in {folder, *BELOW[folder]}]
    assert not wrong


def test_every_include_names_the_tree_from_its_root():
    assert not [f"{p.relative_to(ROOT)}: {name}" for p in SOURCES for name in includes(p) if not (ROOT / name).exists()]


def test_heavy_headers_stay_in_their_one_place():
    text = {p: p.read_text() for p in SOURCES}
    assert not [p for p, t in text.items() if "<torch/torch.h>" in t or "<torch/script.h>" in t]
    httplib = [str(p.relative_to(ROOT)) for p, t in text.items() if "<httplib.h>" in t]
    assert sorted(httplib) == ["controller/client/transport.cpp", "worker/hub/transport.cpp", "worker/server/http.cpp"], "the controller's, and of the worker who asks and who serves"


def test_log_header_comes_last():
    wrong = []
    for path in SOURCES:
        quoted = re.findall(r"^#include (\S+)", path.read_text(), re.M)
        if '"worker/base/log.h"' in quoted and path.name != "log.cpp" and quoted[-1] != '"worker/base/log.h"':
            wrong.append(str(path.relative_to(ROOT)))
    assert not wrong


def test_no_source_file_outgrows_a_few_screens():
    assert not [f"{p.relative_to(ROOT)}: {n} lines" for p in SOURCES if (n := len(p.read_text().splitlines())) > 600]


def test_no_source_file_is_named_after_a_family():
    families = {p.stem for p in (ROOT / "policies").glob("*.yaml")}
    assert families and not [p.name for p in SOURCES if p.stem in families]


def test_no_policy_has_more_than_120_lines():
    assert not [f"{p.name}: {n} lines" for p in (ROOT / "policies").glob("*.yaml") if (n := len(p.read_text().splitlines())) > 120]


def test_the_tree_names_no_machine_path_and_no_registry_host():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words = re.compile("|".join(["/wor" + "k/", "/root/\\.", "pypi\\.org", "crates\\.io/", "proxy\\.golang", "deb\\.debian", "registry\\.npmjs"]))
    wrong = []
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".lock", ".sum", ".safetensors"} or path.name == "Cargo.lock" or not path.is_file() or name == "tests/structure/test_structure.py":
            continue
        if words.search(path.read_text(errors="ignore")):
            wrong.append(name)
    assert not wrong


def test_the_page_of_the_api_says_what_its_definition_says():
    made = subprocess.run([sys.executable, ROOT / "tools/crd.py"], check=True, capture_output=True, text=True).stdout
    assert (ROOT / "docs/crd.md").read_text() == made, "run tools/crd.py docs/crd.md"
