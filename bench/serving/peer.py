# SPDX-License-Identifier: Apache-2.0
"""Serves other engines behind FastAPI with OpenAI's routes: `peer.py hf|ct2|embed FOLDER PORT THREADS`.

Waiting requests are taken as one batch as soon as the engine is free (dynamic batching), because these engines have
no continuous batching. Each row ends at its own max_tokens, and its tokens are streamed.
"""

import asyncio
import json
import queue
import sys
import threading

import torch
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

AT_ONCE = 32


class Completion(BaseModel):
    prompt: str
    max_tokens: int = 16
    temperature: float = 0
    stream: bool = True


class Inputs(BaseModel):
    input: str | list[str]


class Waiting:
    """A pending request: the engine's thread puts tokens, the server's loop reads them."""

    def __init__(self, body, ids):
        self.body, self.ids, self.given = body, ids, 0
        self.loop, self.out = asyncio.get_running_loop(), asyncio.Queue()

    def put(self, item):
        self.loop.call_soon_threadsafe(self.out.put_nowait, item)

    def token(self, token):
        """Returns true for the last token."""
        if self.given < self.body.max_tokens:
            self.given += 1
            self.put(token)
            if self.given == self.body.max_tokens:
                self.put(None)
        return self.given >= self.body.max_tokens


class Batcher:
    def __init__(self, run):
        self.waiting, self.run = queue.Queue(), run
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            batch = [self.waiting.get()]
            while len(batch) < AT_ONCE and not self.waiting.empty():
                batch.append(self.waiting.get())
            self.run(batch)


def hf(folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(),
        AutoTokenizer.from_pretrained(folder, padding_side="left"),
    )

    def run(batch):
        class Rows:
            """A streamer and a stopping criterion that ends rows one by one."""

            first = True

            def put(self, ids):
                if self.first:  # the prompts
                    self.first = False
                    return
                for waiting, token in zip(batch, ids.tolist()):
                    waiting.token(token)

            def end(self):
                pass

            def __call__(self, ids, scores, **_):
                return torch.tensor([waiting.given + 1 >= waiting.body.max_tokens for waiting in batch])

        rows = Rows()
        inputs = tokenizer.pad({"input_ids": [waiting.ids for waiting in batch]}, return_tensors="pt")
        with torch.inference_mode():
            model.generate(
                **inputs,
                do_sample=False,
                max_new_tokens=max(w.body.max_tokens for w in batch),
                streamer=rows,
                stopping_criteria=[rows],
                eos_token_id=None,
            )
        for waiting in batch:
            while not waiting.token(0):
                raise RuntimeError("a row ended early")

    return tokenizer, run


def ct2(folder, source, threads):
    import ctranslate2
    from transformers import AutoTokenizer

    generator, tokenizer = (
        ctranslate2.Generator(folder, device="cpu", compute_type="float32", intra_threads=threads),
        AutoTokenizer.from_pretrained(source),
    )

    def run(batch):
        generator.generate_batch(
            [tokenizer.convert_ids_to_tokens(w.ids) for w in batch],
            max_length=max(w.body.max_tokens for w in batch),
            sampling_topk=1,
            end_token=[],
            include_prompt_in_result=False,
            callback=lambda step: batch[step.batch_id].token(step.token_id),
        )

    return tokenizer, run


def completions(app, tokenizer, run):
    batcher = Batcher(run)

    @app.post("/v1/completions")
    async def create(body: Completion):
        waiting = Waiting(body, tokenizer(body.prompt)["input_ids"])
        batcher.waiting.put(waiting)

        async def events():
            while (token := await waiting.out.get()) is not None:
                choice = {"index": 0, "text": tokenizer.decode([token])}
                yield f"data: {json.dumps({'object': 'text_completion', 'choices': [choice]})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


def embeddings(app, folder):
    """Computes embeddings as sentence-transformers does: mean of the tokens' hidden states, normalised."""
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

    def run(batch):
        inputs = tokenizer(
            [waiting.ids for waiting in batch], padding=True, truncation=True, max_length=256, return_tensors="pt"
        )
        with torch.inference_mode():
            states, mask = model(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
            vectors = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
        for waiting, vector in zip(batch, vectors.tolist()):
            waiting.put(vector)

    batcher = Batcher(run)

    @app.post("/v1/embeddings")
    async def create(body: Inputs):
        waiting = [Waiting(body, text) for text in ([body.input] if isinstance(body.input, str) else body.input)]
        for one in waiting:
            batcher.waiting.put(one)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": i, "embedding": await one.out.get()} for i, one in enumerate(waiting)
            ],
        }


def main(kind, folder, port, threads, source=None):
    torch.set_num_threads(int(threads))
    app = FastAPI()
    app.get("/health")(lambda: {"status": "serving"})
    if kind == "embed":
        embeddings(app, folder)
    else:
        completions(app, *(hf(folder) if kind == "hf" else ct2(folder, source, int(threads))))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
