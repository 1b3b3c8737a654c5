# SPDX-License-Identifier: Apache-2.0
"""What bench/decode and bench/prefill share: the engines as processes, the model that they run, and arguments."""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import sys
import tempfile

from engines import Child, Ours

PEER = pathlib.Path(__file__).resolve().parent / "peer.py"
MODEL = dict(layers=24, hidden=1024, heads=16, kv_heads=16, ffn=2816, vocabulary=32000, tied=True)  # 341 M parameters
PRECISIONS = {
    "F32": ("float32", 4),
    "BF16": ("bfloat16", 2),
    "I8": ("bfloat16", 17 / 16),
    "I4": ("bfloat16", 9 / 16),
    "I8A8": ("bfloat16", 1),
}  # what is stored, as checkpoints are; bytes of a weight as it is read: of I8 and I4 with a scale for each 32
GGUF = {"I8": "gguf_q8", "I4": "gguf_q4", "I8A8": "gguf_q8"}


def run(description, compare, add_arguments):
    """Parses the arguments of a benchmark, those that all have and its own, and compares for each precision and number
    of threads."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--before", help="another worker, of an earlier version")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--engines", default="hf,ct2,llama", help="beside ours")
    add_arguments(parser)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engines are closed
    with tempfile.TemporaryDirectory() as folder:
        for precision in arguments.precisions.split(","):
            for threads in arguments.threads:
                compare(arguments, precision, threads, pathlib.Path(folder))


def cpu_seconds(pid):
    """Returns the CPU seconds of a process and its children."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # gone before open, or between open and read
        return 0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, children))


class Peer(Child):
    def run(self, prompt, tokens):
        answer = self.ask(json.dumps({"prompt": prompt, "tokens": tokens}))
        return answer["ids"], answer["times"]


def engines_of(arguments, precision, threads, paths, log, stack):
    """Starts the engines one by one: ours, that of --before, and the peers of --engines that have the precision. They
    are closed with the stack."""

    def add(engine):
        return stack.enter_context(contextlib.closing(engine))

    def peer(name, kind, path, *rest):
        return add(Peer(name, [sys.executable, PEER, kind, path, threads, *rest], threads, log))

    wanted = arguments.engines.split(",")
    yield add(Ours("ParallelModel", arguments.worker, paths["huggingface"], precision, 1, threads, log))
    if arguments.before:
        yield add(Ours("before", arguments.before, paths["huggingface"], precision, 1, threads, log))
    if "hf" in wanted and precision not in GGUF:
        yield peer("Hugging Face", "hf", paths["huggingface"])
    if "ct2" in wanted and precision not in ("BF16", "I4"):
        yield peer("CTranslate2", "ct2", paths["ctranslate2"], "int8" if "I8" in precision else "float32")
    if "llama" in wanted:
        yield peer("llama.cpp", "llama", paths[GGUF.get(precision, "gguf")])
