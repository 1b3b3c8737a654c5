# SPDX-License-Identifier: Apache-2.0
"""Lints the repository: include directions, what may be included where, names, sizes of files and folders, words of the
docs.

A compiler does not check these rules. docs/design/architecture.md explains the folders, docs/design/glossary.md the
words."""

import collections
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# BELOW lists the folders that the files of a folder may include, beside their own. A folder stands for its subfolders
# only where these are not listed. Every folder may include BASE. The planner is pure, so both programs use it.
BASE = {"base", "contract"}  # the toolbox of both programs, and what one writes and the other reads
BELOW = {
    "base": set(),
    "contract": {"base"},
    "planner": set(),
    "worker/base": set(),
    "worker/checkpoint": {"planner", "worker/base"},
    "worker/hub": {"planner", "worker/base", "worker/checkpoint"},
    "worker/tokenizer": {"worker/base", "worker/checkpoint"},
    "worker/image": {"worker/base"},
    "worker/audio": {"worker/base"},
    "worker/comm": {"worker/base"},
    "worker/policy": {"planner", "worker/base", "worker/checkpoint"},
    "worker/ops": {"worker/base"},
    "worker/layers": {
        "planner",
        "worker/base",
        "worker/checkpoint",
        "worker/policy",
        "worker/comm",
        "worker/ops",
    },
    "worker/models": {"planner", "worker/base", "worker/policy", "worker/layers"},
    "worker/parallel": {
        "planner",
        "worker/base",
        "worker/policy",
        "worker/comm",
        "worker/ops",
        "worker/layers",
        "worker/models",
    },
    "worker/engine": {
        "planner",
        "worker/base",
        "worker/checkpoint",
        "worker/policy",
        "worker/comm",
        "worker/ops",
        "worker/layers",
        "worker/models",
        "worker/parallel",
    },
    "worker/launch": {"worker/base", "worker/comm"},
    "worker/server": {
        "planner",
        "worker/base",
        "worker/checkpoint",
        "worker/comm",
        "worker/tokenizer",
        "worker/image",
        "worker/audio",
        "worker/policy",
        "worker/engine",
    },
    "worker/cli": {
        "planner",
        "worker/audio",
        "worker/base",
        "worker/checkpoint",
        "worker/comm",
        "worker/engine",
        "worker/hub",
        "worker/image",
        "worker/launch",
        "worker/layers",
        "worker/models",
        "worker/ops",
        "worker/policy",
        "worker/server",
        "worker/tokenizer",
    },
    "controller/core": set(),
    "controller/client": {"controller/core"},
    "controller/runtime": {"controller/core", "controller/client"},
    "controller/operator": {"contract", "planner", "controller/core", "controller/client", "controller/runtime"},
}
# Folders whose files may include both ways: a folder and its parts are one idea there.
WHOLE = {
    "planner/strategies",
    "worker/checkpoint/gguf",
    "worker/checkpoint/quantized",
    "worker/layers/adapters",
    "worker/layers/convolution",
    "worker/layers/feed_forward",
    "worker/models/heads/images",
    "worker/layers/patterns",
    "worker/layers/recurrent",
    "worker/ops/cpu",
    "worker/ops/cuda",
    "worker/ops/cuda/linear",
    "worker/policy/spec/input",
    "worker/policy/spec/recurrent",
}
# in a folder; data, cases and logs may have more: policies are a file a family, parity tests and decisions one a topic
MAX_FILES = 34
FULL_FOLDERS = {"policies", "tests/parity", "docs/design/decisions"}
MAX_LINES = 500
MAX_COLUMNS = 120
CPP = {".cpp", ".h", ".cu", ".cuh"}
SOURCES = [
    p
    for top in ("base", "contract", "planner", "worker", "controller")
    for p in (ROOT / top).rglob("*")
    if p.suffix in CPP
]
TRACKED = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if (ROOT / name).is_file()
]
# Words that the project used privately; docs/design/glossary.md names the standard term for each.
RETIRED = re.compile(
    r"\b(anew|befell|hopes_for\w*|dealt|repays?|incarnations?|pretended|played again|come together|strangers'?"
    r"|broken places?|as good as whole|noticed by nobody|knock(?:s|ed)?|taken back|given back|bell|shelf)\b",
    re.I,
)
# Pages about words, and the text on which the example model was trained.
PAGES_OF_WORDS = {
    "docs/design/glossary.md",
    "CHANGELOG.md",
    "tests/structure/test_structure.py",
    "examples/tiny-stories/stories.py",
}


def includes(path):
    return re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)


def folder_of(name):
    return next((f for f in sorted(BELOW, key=len, reverse=True) if name.startswith(f + "/")), None)


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_includes_only_what_lies_below_it(folder):
    wrong = [
        f"{path.relative_to(ROOT)} includes {name}"
        for path in SOURCES
        if folder_of(str(path.relative_to(ROOT))) == folder
        for name in includes(path)
        if folder_of(name) not in {folder, *BELOW[folder], *(() if folder in BASE else BASE)}
    ]
    assert not wrong


def test_every_include_names_the_tree_from_its_root():
    assert not [f"{p.relative_to(ROOT)}: {name}" for p in SOURCES for name in includes(p) if not (ROOT / name).exists()]


def test_heavy_headers_stay_in_their_one_place():
    text = {p: p.read_text() for p in SOURCES}
    assert not [p for p, t in text.items() if "<torch/torch.h>" in t or "<torch/script.h>" in t]
    httplib = [str(p.relative_to(ROOT)) for p, t in text.items() if "<httplib.h>" in t]
    assert sorted(httplib) == [
        "controller/client/transport.cpp",
        "worker/hub/transport.cpp",
        "worker/server/http/http.cpp",
    ], "the controller's, and of the worker who asks and who serves"


def test_log_header_comes_last():
    wrong = []
    for path in SOURCES:
        quoted = re.findall(r"^#include (\S+)", path.read_text(), re.M)
        if '"base/log.h"' in quoted and path.name != "log.cpp" and quoted[-1] != '"base/log.h"':
            wrong.append(str(path.relative_to(ROOT)))
    assert not wrong


def test_the_planner_does_no_input_or_output():
    impure = {"base/log.h", "base/signals.h"}
    planner = [p for p in SOURCES if p.is_relative_to(ROOT / "planner")]
    assert planner and not [f"{p.relative_to(ROOT)}: {name}" for p in planner for name in {*includes(p)} & impure]


def test_folders_do_not_include_each_other_in_a_circle():
    below = collections.defaultdict(set)
    for path in SOURCES:
        folder = path.parent.relative_to(ROOT).as_posix()
        below[folder] |= {f for n in includes(path) if (f := n.rpartition("/")[0]) != folder}
    for whole in sorted(WHOLE, reverse=True):  # parts first
        parent = whole.rpartition("/")[0]
        below[parent] |= below.pop(whole, set()) - {parent}
        for folders in below.values():
            if whole in folders:
                folders.remove(whole)
                folders.add(parent)
        below[parent].discard(parent)
    order = []
    while below:
        free = [f for f, under in below.items() if not under & set(below)]
        assert free, f"these include each other: { {f: sorted(u & set(below)) for f, u in below.items()} }"
        order += free
        for folder in free:
            del below[folder]
    assert order


def test_no_folder_outgrows_a_screen():
    count = collections.Counter(p.parent.relative_to(ROOT).as_posix() for p in TRACKED)
    assert not {f: n for f, n in count.items() if n > MAX_FILES and f not in FULL_FOLDERS}


def test_no_source_file_outgrows_a_few_screens():
    assert not [
        f"{p.relative_to(ROOT)}: {n} lines" for p in SOURCES if (n := len(p.read_text().splitlines())) > MAX_LINES
    ]


def test_no_line_of_code_is_wider_than_the_limit():
    """Raw string literals do not count: no formatter may break them."""
    suffixes = CPP | {".py", ".sh", ".cmake"}
    wide = []
    for path in TRACKED:
        if path.suffix not in suffixes and path.name != "CMakeLists.txt":
            continue
        text = path.read_text()
        if path.suffix in CPP:
            text = re.sub(r'R"(\w*)\((.*?)\)\1"', lambda m: '""' + "\n" * m[2].count("\n"), text, flags=re.S)
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > MAX_COLUMNS:
                wide.append(f"{path.relative_to(ROOT)}:{number}")
    assert not wide


def test_every_source_file_names_its_licence():
    named = CPP | {".py", ".sh", ".cmake", ".rs", ".go"}
    missing = [
        str(p.relative_to(ROOT))
        for p in TRACKED
        if (p.suffix in named or p.name == "CMakeLists.txt")
        and "SPDX-License-Identifier: Apache-2.0" not in p.read_text()[:400]
    ]
    assert not missing


def test_no_comment_only_points_to_a_header():
    bare = re.compile(r"^\s*// See [\w/.]+\.h[.]?$", re.M)
    assert not [str(p.relative_to(ROOT)) for p in SOURCES if bare.search(p.read_text())]


def test_no_retired_word_stands_in_the_tree():
    found = []
    for path in TRACKED:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in CPP | {".py", ".sh", ".cmake", ".rs", ".md", ".yaml", ".tpl", ".txt"}:
            continue
        if name in PAGES_OF_WORDS or name.startswith("docs/design/decisions/"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found += [f"{name}:{number}: {word[0]}" for word in RETIRED.finditer(line)]
    assert not found


def test_the_lint_of_words_notices_a_planted_one():
    assert RETIRED.search("// the table is built " + "a" + "new")
    assert not RETIRED.search("// the table is built again")


def test_tables_of_the_docs_hold_values_and_not_paragraphs():
    wide = []
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        if path.name in {"crd.md", "families.md"}:
            continue  # generated
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("|"):
                wide += [f"{path.relative_to(ROOT)}:{number}" for cell in line.split("|") if len(cell.strip()) > 120]
    assert not wide


def test_links_of_the_docs_lead_somewhere():
    broken = []
    for path in [p for p in TRACKED if p.suffix == ".md"]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert not broken


def test_pages_that_the_sources_cite_exist():
    cited = re.compile(r"\b([A-Z]{3,}\.md|(?:docs|tests|examples|helm)/[\w./-]+\.md)\b")
    suffixes = CPP | {".py", ".sh", ".cmake", ".rs", ".yaml", ".tpl", ".txt"}
    assert not [
        f"{path.relative_to(ROOT)}: {name}"
        for path in TRACKED
        if path.suffix in suffixes and path.name != "test_guides.py"
        for name in cited.findall(path.read_text())
        if not (ROOT / name).exists()
    ]


def test_every_operation_of_the_backend_has_cases_in_bench_ops():
    header = (ROOT / "worker/ops/backend.h").read_text()
    operations = set(re.findall(r"virtual [\w:]+ (\w+)\(", header))
    operations -= {"attention_metadata"}  # an input of attention, whose cases make it
    operations -= {"activation_type", "rounds_inputs"}  # compute nothing
    called = {
        name
        for path in (ROOT / "bench/ops").glob("cases_*.cpp")
        for name in re.findall(r"\bbackend\.(\w+)\(", path.read_text())
    }
    overridden = set(re.findall(r"(\w+)\([^;{}]*\) const override", (ROOT / "bench/ops/dispatched.h").read_text()))
    listed = set(re.findall(r'^    \{"(\w+)", \1_cases\},$', (ROOT / "bench/ops/case.h").read_text(), re.M))
    assert len(operations) > 10
    assert not operations - called, "call them in a case of bench/ops/cases_*.cpp"
    assert not operations - overridden, "dispatch them in bench/ops/dispatched.h"
    assert operations - listed == {"has_sampler"}, "list them in bench/ops/case.h; sample's cases ask has_sampler"


def test_notices_name_everything_that_the_lock_files_name():
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    crates = re.findall(
        r'^name = "([^"]+)"\nversion = "([^"]+)"\nsource', (ROOT / "worker/tokenizer/ffi/Cargo.lock").read_text(), re.M
    )
    wheels = re.findall(r"^([\w.-]+)==([\w.+-]+)", (ROOT / "tools/wheels.txt").read_text(), re.M)
    assert crates and wheels
    assert not [f"{n} {v}" for n, v in [*crates, *wheels] if f"| {n} | {v} |" not in notices]


def test_no_source_file_is_named_after_a_family():
    families = {p.stem for p in (ROOT / "policies").glob("*.yaml")}
    assert families and not [p.name for p in SOURCES if p.stem in families]


def test_no_policy_has_more_than_120_lines():
    assert not [
        f"{p.name}: {n} lines"
        for p in (ROOT / "policies").glob("*.yaml")
        if (n := len(p.read_text().splitlines())) > 120
    ]


def test_the_tree_names_no_machine_path_and_no_registry_host():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words = re.compile(
        "|".join(
            [
                "/wor" + "k/",
                "/root/\\.",
                "pypi\\.org",
                "crates\\.io/",
                "proxy\\.golang",
                "deb\\.debian",
                "registry\\.npmjs",
            ]
        )
    )
    wrong = []
    for name in tracked:
        path = ROOT / name
        if (
            path.suffix in {".lock", ".sum", ".safetensors"}
            or path.name == "Cargo.lock"
            or not path.is_file()
            or name == "tests/structure/test_structure.py"
        ):
            continue
        if words.search(path.read_text(errors="ignore")):
            wrong.append(name)
    assert not wrong


def test_the_page_of_the_api_says_what_its_definition_says():
    made = subprocess.run([sys.executable, ROOT / "tools/crd.py"], check=True, capture_output=True, text=True).stdout
    assert (ROOT / "docs/reference/crd.md").read_text() == made, "run tools/crd.py docs/reference/crd.md"


@pytest.mark.parametrize("folder", ["browser", "chart", "e2e", "hub", "image", "release", "reliability", "stress"])
def test_the_tests_of_late_stages_can_be_imported(folder):
    """Their folders share helper modules, and a clash of names would otherwise show after half an hour of tests."""
    collect = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", f"tests/{folder}"]
    done = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
