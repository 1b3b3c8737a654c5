# SPDX-License-Identifier: Apache-2.0
"""Compares images among the tokens of prompts with Hugging Face in one run: the same random weights, images that no
engine has seen before, and the time from the file of an image to the first token, engines in turn. bench/images.sh runs
it.

The tower has the width of Qwen2.5-VL's (1,280, patches of 14 pixels, windows of 112) and some of its layers; the
decoder is small, so that the time is that of images. The result is an image's tokens (squares of 28 pixels) divided by
that time: of the best round, and the median of all. ParallelModel is measured over HTTP with the image as a data URL,
transformers by a call within this process (sdpa, from the bytes of the same PNG by its image processor).
"""

import argparse
import base64
import contextlib
import http.client
import io
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import served

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel"))
IMAGE, BEGIN, END, VOCABULARY = 3, 4, 5, 1000
TEMPLATE = """{% for m in messages %}{% for part in m.content %}{% if part.type == 'image' %}<begin><image><end>\
{% else %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}"""


def checkpoint(layers, dtype):
    """Returns the folder of a model with random weights, a tokenizer of words and the image processor."""
    import tokenizers
    import torch
    import transformers

    folder = CACHE / f"bench-images-{layers}-{dtype}"
    if (folder / "done").exists():
        return folder
    config = transformers.Qwen2_5_VLConfig(
        text_config=dict(
            hidden_size=512,
            intermediate_size=1024,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=2,
            vocab_size=VOCABULARY,
            max_position_embeddings=32768,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
            eos_token_id=0,
            bos_token_id=0,
            pad_token_id=0,
        ),
        vision_config=dict(
            depth=layers,
            hidden_size=1280,
            out_hidden_size=512,
            fullatt_block_indexes=list(range(3, layers, 4)),
        ),
        image_token_id=IMAGE,
    )
    torch.manual_seed(1)
    model = transformers.Qwen2_5_VLForConditionalGeneration(config).to(getattr(torch, dtype))
    model.generation_config = transformers.GenerationConfig(eos_token_id=0, pad_token_id=0)
    model.save_pretrained(folder)
    words = {word: number for number, word in enumerate(["<end of text>", "a", "b", "<image>", "<begin>", "<end>"])}
    words |= {f"w{i}": i for i in range(len(words), VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end of text>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>", "<begin>", "<end>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    transformers.Qwen2VLImageProcessorPil().save_pretrained(folder)
    (folder / "done").touch()
    return folder


def picture(side, number):
    """Returns the bytes of a PNG that no other round has."""
    import numpy
    from PIL import Image

    y, x = numpy.mgrid[:side, :side]
    waves = numpy.stack([127 + 100 * numpy.sin((x * (c + 1) + y * (3 - c)) / (17 + number)) for c in range(3)], -1)
    file = io.BytesIO()
    Image.fromarray(waves.astype(numpy.uint8)).save(file, "PNG")
    return file.getvalue()


class Ours:
    name = "ParallelModel"

    def __init__(self, arguments, folder, log):
        self.server = served.Server(
            self.name, served.worker(arguments.worker, folder, "--max-sequence-length", 16384), log
        )

    def run(self, file):
        url = "data:image/png;base64," + base64.b64encode(file).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "a b a"}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "temperature": 0}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=1200)
        connection.request("POST", "/v1/chat/completions", json.dumps(body | {"return_token_ids": True}))
        answer = json.loads(connection.getresponse().read())
        return answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens"]

    def close(self):
        self.server.close()


class Transformers:
    name = "transformers"

    def __init__(self, _, folder, __):
        import torch
        import transformers

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.prepares = transformers.Qwen2VLImageProcessorPil.from_pretrained(folder)
        self.model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
            folder, dtype="auto", attn_implementation="sdpa"
        ).eval()

    def run(self, file):
        import torch
        from PIL import Image

        given = self.prepares(images=[Image.open(io.BytesIO(file)).convert("RGB")], return_tensors="pt")
        squares = int(given["image_grid_thw"].prod()) // 4
        ids = torch.tensor([[BEGIN, *[IMAGE] * squares, END, 1, 2, 1]])
        with torch.inference_mode():
            made = self.model.generate(
                ids,
                pixel_values=given["pixel_values"].to(self.model.dtype),
                image_grid_thw=given["image_grid_thw"],
                mm_token_type_ids=(ids == IMAGE).long(),
                attention_mask=torch.ones_like(ids),
                max_new_tokens=1,
                do_sample=False,
            )
        return made[0, ids.shape[1] :].tolist(), ids.shape[1]

    def close(self):
        pass


def measure(engines, side, rounds):
    found = {engine.name: [] for engine in engines}
    tokens = same = 0
    for turn in range(rounds + 1):
        file, answers = picture(side, turn), []
        for engine in engines if turn % 2 == 0 else engines[::-1]:
            begin = time.monotonic()
            answers.append(engine.run(file))
            if turn > 0:  # the first warms
                found[engine.name].append(time.monotonic() - begin)
        tokens = answers[0][1]
        same += all(answer == answers[0] for answer in answers)
    best = {name: min(seconds) for name, seconds in found.items()}
    for name, seconds in found.items():
        ratio = f"{best['transformers'] / best[name]:10.2f}" if name == "ParallelModel" else ""
        print(
            f"{side:5} {tokens:7} {name:16} {min(seconds):10.3f} {statistics.median(seconds):8.3f} "
            f"{tokens / min(seconds):9.0f} {ratio}",
            flush=True,
        )
    print(f"{'':14}the first token was the same in {same} of {rounds + 1} rounds", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--sides", type=lambda text: [int(n) for n in text.split(",")], default=[448, 896])
    parser.add_argument("--layers", type=int, default=8, help="of the tower, of which Qwen2.5-VL has 32")
    parser.add_argument("--types", type=lambda text: text.split(","), default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=4, help="of each engine in turn")
    arguments = parser.parse_args()
    for dtype in arguments.types:
        folder = checkpoint(arguments.layers, dtype)
        print(
            f"\n{dtype}\n{'side':5} {'tokens':7} {'':16} {'best s':>10} {'median':>8} {'tokens/s':>9} {'of peer':>10}"
        )
        with contextlib.ExitStack() as stack:
            engines = []
            for kind in (Ours, Transformers):
                engines.append(kind(arguments, folder, CACHE / "bench-images.log"))
                stack.callback(engines[-1].close)
            for side in arguments.sides:
                measure(engines, side, arguments.rounds)


if __name__ == "__main__":
    main()
