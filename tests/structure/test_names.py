# SPDX-License-Identifier: Apache-2.0
"""Lints the names of headers, constants and macros by patterns, over the whole tree and within seconds.

`make lint` also runs clang-tidy (.clang-tidy) on the C++ files that changed. The sentences of the docs are measured
here too."""

import collections
import re

from test_structure import ROOT, TRACKED

CPP = [path for path in TRACKED if path.suffix in {".cpp", ".h", ".cu", ".cuh"}]
PROGRAMS = ("planner/", "worker/", "controller/", "base/", "contract/")

# Headers of the programs that share a name, with the one meaning that they share. Any other pair needs other names.
LEVELS = "one operation or part of a model at several levels: model definition, layer, operation, kernel"
PROGRAM = "each program's own of the same thing"
SHARED_HEADERS = {
    "attention.h": LEVELS,
    "backend.h": "the interface of a device's kernels, and its implementations",
    "base64.h": PROGRAM,
    "bottleneck.h": LEVELS,
    "client.h": "a client of an HTTP API, which the folder names",
    "communicator.h": "the interface of collectives, and its implementation by NCCL",
    "clusters.h": LEVELS,
    "convolution.h": LEVELS,
    "cross_block.h": LEVELS,
    "entities.h": LEVELS,
    "hardware.h": "what the planner knows of devices, and how the controller learns it",
    "head.h": LEVELS,
    "input.h": LEVELS,
    "latent_attention.h": LEVELS,
    "log.h": PROGRAM,
    "metrics.h": PROGRAM,
    "mlp.h": LEVELS,
    "model.h": LEVELS,
    "pooling.h": LEVELS,
    "rotary.h": LEVELS,
    "sample.h": LEVELS,
    "similarity.h": "the similarity of vectors: the head of a model, and the route that it serves",
    "stack.h": LEVELS,
    "thread_pool.h": "a pool of threads: of the CPU kernels, of HTTP connections",
    "tls.h": PROGRAM,
    "transport.h": "the HTTP transport of a client",
    "types.h": "element types as the kernels of a device see them",
}

NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S
)
# kName, but for constants of ATen and FlashInfer; `constexpr Type Name =` and `const Type Name{`;
# `constexpr Type a = 1, Name =`.
K_NAME = re.compile(r"(?<!at::)(?<!c10::)(?<!torch::)(?<!MaskMode::)\bk[A-Z]\w*")
CAMEL_CONSTANT = re.compile(
    r"\b(?:constexpr|const)\s+[\w:<>*\s]*?(?<!:)\b([A-Z][a-z]\w*)\s*(?:\[\w*\]\s*)*(?:=(?!=)|\{)"
)
SECOND_CONSTANT = re.compile(r"\bconstexpr\s[^;(){}&]*(?:\{[^;{}]*\})?,\s*([A-Z][a-z]\w*)\s*[={]")
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)", re.M)
# Macros of CUDA, NCCL and glog, for which these files stand.
FOREIGN_MACROS = {"tests/gpu/kernels/emulation/emulation.h", "tests/gpu/fake_device/nccl/nccl.h"}
MAX_WORDS = 30


def code(path):
    """Returns the text without comments and literals; line numbers stay."""
    return NOT_CODE.sub(lambda m: "\n" * m[0].count("\n"), path.read_text())


def camel_constants(text):
    return [found for pattern in (K_NAME, CAMEL_CONSTANT, SECOND_CONSTANT) for found in pattern.finditer(text)]


def test_a_name_of_a_header_has_one_meaning():
    places = collections.defaultdict(list)
    for path in CPP:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in {".h", ".cuh"} and name.startswith(PROGRAMS):
            places[path.name].append(name)
    assert not {name: where for name, where in places.items() if len(where) > 1 and name not in SHARED_HEADERS}


def test_constants_are_lower_case():
    wrong = []
    for path in CPP:
        text = code(path)
        for found in camel_constants(text):
            wrong.append(f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}")
    assert not wrong


def test_the_lint_of_constants_knows_constants_from_types_and_defaults():
    for line in (
        "constexpr int kMax = 1;",
        "const std::string Kind{};",
        "inline constexpr Route Routes[] = {};",
        "constexpr int a = 1, Adds = 2;",
        "constexpr S a{1}, Cap{2};",
    ):
        assert camel_constants(line), line
    for line in (
        "x = at::kFloat;",
        "void f(const T&, Access = {});",
        "const Plan plan = Plan{};",
        "constexpr int n = 1;",
    ):
        assert not camel_constants(line), line


def test_macros_begin_with_the_name_of_the_project():
    wrong = []
    for path in CPP:
        name = path.relative_to(ROOT).as_posix()
        if name in FOREIGN_MACROS or name.startswith("tests/fuzz/stub/"):
            continue
        wrong += [f"{name}: {macro}" for macro in MACRO.findall(path.read_text()) if not macro.startswith("PM_")]
    assert not wrong


def sentences(page):
    """Returns the sentences of a page's paragraphs and list items, without code, tables and headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    text = "\n".join("" if re.match(r"\||#|\t| {4}(?! *[-*\d])", line) else line for line in text.splitlines())
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", text):
        block = re.sub(r"\]\([^)]*\)", "]", re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", block))
        block = re.sub(r"`[^`]*`", "code", block)
        yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"\[(*]|code\b)", " ".join(block.split()))


def test_long_sentences_of_the_docs_are_reported(capsys):
    """Prints the sentences to shorten; long ones are no failure."""
    pages = [path for path in TRACKED if path.suffix == ".md" and path.name not in {"crd.md", "families.md"}]
    long = []
    for page in pages:
        for sentence in sentences(page):
            if (words := len(re.findall(r"[\w'-]+", sentence))) > MAX_WORDS:
                long.append(f"  {page.relative_to(ROOT)}: {words} words: {sentence[:70]}...")
    with capsys.disabled():
        if long:
            print(f"\nsentences of more than {MAX_WORDS} words:", *long, sep="\n")
    assert pages
