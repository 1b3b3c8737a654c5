# SPDX-License-Identifier: Apache-2.0
"""Images among the tokens of a prompt, over HTTP from real servers of every layout: answers and their
log-probabilities equal those of transformers with the same tokenizer, template and image processor.
"""

import base64
import contextlib
import http.server
import json
import re
import threading

import anthropic
import numpy
import openai
import pytest
import torch
from PIL import Image
from prompt_image_models import NEW_TOKENS, Model
from server import Server
from test_generated_media import in_base64

import worker

PARTS = """{% for m in messages %}[{{ m.role }}]{% for part in m.content %}{% if part.type == 'image' %}\
{{ image }}{% else %}{{ part.text }}{% endif %}{% endfor %}{{ eos_token }}{% endfor %}\
{% if add_generation_prompt %}[assistant]{% endif %}"""
TEXTS = """{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt \
%}[assistant]{% endif %}"""
LAYOUTS = {
    "one": (1, "", ""),
    "tensor": (2, "tensor=2", ""),
    "uneven tensor": (3, "tensor=3", ""),
    "pipeline": (2, "pipeline=2", ""),
    "more stages": (3, "pipeline=3", ""),
    "both": (4, "tensor=2,pipeline=2", ""),
    "data": (2, "data=2", ""),
    "Sharded": (2, "data=2", "Sharded"),
    "Offload": (1, "tensor=1", "Offload"),
}


# what does not depend on layers is shown with one family of each kind of images: of one size, of one size whose tokens
# see each other, as patches, and whole ones row by row
@pytest.fixture(scope="module", params=["llava", "gemma3", "qwen3_vl", "mistral3"])
def model(tmp_path_factory, request):
    return Model(tmp_path_factory.mktemp(request.param) / "parts", PARTS, request.param)


class Served:
    def __init__(self, model, layout="one", options=()):
        ranks, sizes, strategy = LAYOUTS[layout]
        self.model = model
        self.server = Server(model.folder, ranks, sizes, strategy, options)
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120)

    def ask(self, messages, **more):
        body = {"messages": messages, "max_tokens": NEW_TOKENS, "temperature": 0, "logprobs": True, **more}
        return self.server.ask("/v1/chat/completions", body | {"return_token_ids": True})

    def close(self):
        self.server.close()


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with contextlib.ExitStack() as stack:

        def start(*arguments, **more):
            served = Served(*arguments, **more)
            stack.callback(served.close)
            return served

        yield start


@pytest.fixture(scope="module")
def served(serve, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("media")
    one = serve(model, options=("--media-folder", folder))
    one.media = folder
    return one


def picture(seed, width=31, height=44):
    return Image.fromarray(numpy.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=numpy.uint8))


def part(image):
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + in_base64(image), "detail": "low"}}


def text(words):
    return {"type": "text", "text": words}


def conversation(*contents):
    """Turns of the user and the assistant. Returns them as OpenAI has them and as templates have them, and the
    images."""
    sent, shown, images = [], [], []
    for turn, content in enumerate(contents):
        role = ("user", "assistant")[turn % 2]
        sent.append({"role": role, "content": [part(x) if isinstance(x, Image.Image) else text(x) for x in content]})
        made = [{"type": "image"} if isinstance(x, Image.Image) else text(x) for x in content]
        shown.append({"role": role, "content": made})
        images += [x for x in content if isinstance(x, Image.Image)]
    return sent, shown, images


CONVERSATIONS = {
    "one image": ([picture(1), "the cat sat on"],),
    "image behind the text": (["the cat sat on", picture(2)],),
    "two images": (["a", picture(3), "and", picture(4), "in Paris"],),
    "side by side": ([picture(5), picture(6), picture(5), "the dog"],),
    "of other sizes": (["a", picture(9, 90, 20), "b", picture(10, 12, 70), "c", picture(11, 9, 9), "d"],),
    "in later turns": ([picture(7), "the cat"], ["of John"], ["ran over", picture(8), "seven hills"]),
    "none": (["the cat sat on the mat"],),
}


def check(served, contents, **more):
    sent, shown, images = conversation(*contents)
    length, ids, scores = served.model.answer(shown, images)
    reply = served.ask(sent, **more)
    assert reply["choices"][0]["token_ids"] == ids
    assert reply["usage"]["prompt_tokens"] == length
    ours = [one["logprob"] for one in reply["choices"][0]["logprobs"]["content"]]
    numpy.testing.assert_allclose(ours, scores, atol=2e-4)
    return reply


@pytest.mark.parametrize(
    "model, layout",
    [(family, layout) for family in ("llava", "qwen3_vl") for layout in LAYOUTS]
    + [("gemma3", one) for one in ("one", "uneven tensor", "both", "Sharded")]
    + [("qwen2_vl", "both"), ("qwen2_5_vl", "uneven tensor"), ("qwen2_5_vl", "pipeline"), ("qwen2_5_vl", "Offload")]
    + [("qwen3_5", "uneven tensor"), ("qwen3_5", "both"), ("qwen3_vl_moe", "both")]
    + [("mistral3", "uneven tensor"), ("mistral3", "both"), ("pixtral", "pipeline")],
    indirect=["model"],
)
def test_answers_are_those_of_transformers(model, layout):
    with contextlib.closing(Served(model, layout)) as served:
        for contents in CONVERSATIONS.values():
            check(served, contents)


def test_prompts_with_more_images_than_a_step_has_tokens(served):
    check(served, (["a"] + [picture(100 + i, 12, 12) for i in range(40)] + ["the dog"] + ["of John ran over"] * 60,))


def looked_up(served):
    """The images that were looked up among kept rows and those that were found, by ours and by vLLM's names."""
    found = re.findall(r"^(\w+?)[_:](mm_cache_\w+)(?:\{.*\})? (\S+)$", served.server.get("/metrics").text, re.MULTILINE)
    return {f"{whose}:{name}": float(value) for whose, name, value in found}


def test_images_alike_share_blocks_and_others_do_not(served):
    words = "the cat sat on the mat and saw Anna Smith in Paris while the dog of John ran over seven green hills"
    before = looked_up(served)
    first = check(served, ([picture(20), words],))
    again = check(served, ([picture(20), words],))
    other = check(served, ([picture(21), words],))
    later = check(served, ([picture(20), words], ["of John"], ["and", picture(21)]))
    cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in (first, again, other, later)]
    assert cached[0] == 0 and cached[1] >= 32 and cached[2] == 0 and cached[3] >= 32
    for name, more in (("mm_cache_queries_total", 5), ("mm_cache_hits_total", 3)):
        for whose in ("parallelmodel", "vllm"):
            assert looked_up(served)[f"{whose}:{name}"] - before[f"{whose}:{name}"] == more


def assert_same_text(ours, theirs):
    """Families with reasoning have none of the blanks around it in their answers."""
    assert ours.strip() == theirs.strip()


def test_drafts_stand_behind_images_as_tokens_do(serve, model):
    drafting = serve(model, options=("--speculation", "ngram"))
    words = "the cat sat on the mat and the cat sat on the mat and the cat sat on"
    sent, shown, images = conversation([picture(31), words, picture(32, 60, 12), words])
    _, ids, _ = model.answer(shown, images, 96)
    assert drafting.ask(sent, max_tokens=96)["choices"][0]["token_ids"] == ids
    metrics = drafting.server.get("/metrics").text
    assert float(re.search(r"^parallelmodel_spec_decode_num_drafts_total (\S+)$", metrics, re.MULTILINE)[1]) > 0


def test_streams_and_samples(served):
    sent, shown, images = conversation([picture(30), "the cat"])
    _, ids, _ = served.model.answer(shown, images)
    expected = served.model.tokenizer.decode(ids, skip_special_tokens=True)
    stream = served.client.chat.completions.create(
        model="parts", messages=sent, max_tokens=NEW_TOKENS, temperature=0, stream=True
    )
    assert_same_text("".join(chunk.choices[0].delta.content or "" for chunk in stream), expected)
    both = served.ask(sent, n=2, seed=5, temperature=1.0)
    alone = served.ask(sent, n=2, seed=5, temperature=1.0)
    assert [one["token_ids"] for one in both["choices"]] == [one["token_ids"] for one in alone["choices"]]


def test_other_wire_forms_say_the_same(served):
    sent, shown, images = conversation([picture(40), "the cat sat on"])
    length, ids, _ = served.model.answer(shown, images)
    expected = served.model.tokenizer.decode(ids, skip_special_tokens=True)
    data = in_base64(images[0])
    client = anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=120)
    source = {"type": "base64", "media_type": "image/png", "data": data}
    turn = {"role": "user", "content": [{"type": "image", "source": source}, text("the cat sat on")]}
    made = client.messages.create(model="parts", max_tokens=NEW_TOKENS, messages=[turn])
    assert_same_text(made.content[0].text, expected)
    assert client.messages.count_tokens(model="parts", messages=[turn]).input_tokens == length
    parts = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"},
        {"type": "input_text", "text": "the cat sat on"},
    ]
    reply = served.client.responses.create(
        model="parts", input=[{"role": "user", "content": parts}], max_output_tokens=NEW_TOKENS, temperature=0
    )
    assert_same_text(reply.output_text, expected)
    listed = served.client.responses.input_items.list(reply.id)
    assert listed.data[0].content[0].image_url == parts[0]["image_url"]
    more = served.client.responses.create(
        model="parts", previous_response_id=reply.id, input="and", max_output_tokens=NEW_TOKENS, temperature=0
    )
    turns = [
        *shown,
        {"role": "assistant", "content": [text(reply.output_text)]},
        {"role": "user", "content": [text("and")]},
    ]
    _, ids, _ = served.model.answer(turns, images)
    assert_same_text(more.output_text, served.model.tokenizer.decode(ids, skip_special_tokens=True))


def test_a_template_of_texts_gets_the_token_of_images(serve, tmp_path):
    model = Model(tmp_path / "texts", TEXTS)
    served = serve(model)
    sent, _, images = conversation(["a", picture(50), "the cat"])
    _, ids, _ = model.answer([{"role": "user", "content": "a\n<image>\nthe cat"}], images)
    assert served.ask(sent)["choices"][0]["token_ids"] == ids


def test_files_of_the_offered_folder(served, tmp_path):
    _, shown, images = conversation([picture(60), "the cat"])
    _, ids, _ = served.model.answer(shown, images)
    images[0].save(served.media / "a b.png")

    def body(url):
        content = [{"type": "image_url", "image_url": {"url": url}}, text("the cat")]
        return {"messages": [{"role": "user", "content": content}], "max_tokens": NEW_TOKENS, "temperature": 0}

    reply = served.server.ask(
        "/v1/chat/completions", body(f"file://{served.media}/a%20b.png") | {"return_token_ids": True}
    )
    assert reply["choices"][0]["token_ids"] == ids
    images[0].save(tmp_path / "outside.png")
    (served.media / "link.png").symlink_to(tmp_path / "outside.png")
    for path in (
        f"{served.media}/none.png",
        f"{served.media}",
        f"{served.media}/../{tmp_path.name}/outside.png",
        f"{served.media}/link.png",
        f"{tmp_path}/outside.png",
        "/etc/passwd",
    ):
        error = served.server.refused("/v1/chat/completions", body(f"file://{path}"), 400)
        assert "no file in the folder that this server offers" in error["message"]
        assert error["param"] == "messages[0].content[0].image_url.url"


@pytest.mark.parametrize(
    "content, param, words",
    [
        ([{"type": "image_url", "image_url": {"url": "http://127.0.0.1/cat.png"}}], "[0].image_url.url", "fetches"),
        ([{"type": "image_url", "image_url": "data:image/png;base64,aGVsbG8="}], "[0].image_url", "PNG"),
        ([{"type": "image_url"}], "[0].image_url", "missing"),
        ([{"type": "image_url", "image_url": {}}], "[0].image_url.url", "missing"),
        ([{"type": "image_url", "image_url": 3}], "[0].image_url", "an object"),
        ([{"type": "input_audio", "input_audio": {}}], "[0].type", "no sounds"),
        ([part(picture(70))] * 65, "[64]", "more than 64 images"),
        ([part(picture(70))] * 64 + [text("a " * 800)], "messages", "context window"),
    ],
    ids=lambda value: "" if isinstance(value, list) else value[:20],
)
def test_what_is_no_image_is_refused(served, content, param, words):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 4}
    reply = served.server.post("/v1/chat/completions", body)
    assert reply.status_code in (400, 413), reply.text
    error = reply.json()["error"]
    assert words in error["message"]
    assert error["param"] == (param if param == "messages" else "messages[0].content" + param)


def test_tokens_of_images_in_a_text_are_refused_beside_images(served):
    for words in {served.model.placeholder, served.model.tokenizer.convert_ids_to_tokens(served.model.image)}:
        sent, _, _ = conversation([picture(72), f"say {words}"])
        error = served.server.refused("/v1/chat/completions", {"messages": sent}, 400)
        assert error["param"] == "messages" and "a text must not have such a token itself" in error["message"]


def test_only_the_user_shows_images(served):
    for role in ("system", "assistant"):
        turns = [{"role": role, "content": [part(picture(71))]}, {"role": "user", "content": "a"}]
        error = served.server.refused("/v1/chat/completions", {"messages": turns}, 400)
        assert error["param"] == "messages[0].content[0].type" and "messages of the user" in error["message"]


def test_a_server_without_a_folder_reads_no_files_and_says_so(serve, model, served):
    other = serve(model)
    content = [{"type": "image_url", "image_url": {"url": "file:///etc/hostname"}}]
    error = other.server.refused("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]}, 400)
    assert "--media-folder" in error["message"]


class Site(http.server.BaseHTTPRequestHandler):
    """A picture, redirects to a path or another port, nothing, and a status."""

    def do_GET(self):
        if self.path == "/cat.png":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.server.file)
        elif self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.server.targets[self.path])
            self.end_headers()
        else:
            self.send_response(200 if self.path == "/empty" else 404)
            self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def site(file):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        server.file, server.targets = file, {"/to/cat": "/cat.png", "/to/self": "/to/self"}
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_images_of_listed_hosts_are_fetched_and_of_others_are_not(serve, model):
    sent, shown, images = conversation([picture(95), "the cat"])
    _, ids, _ = model.answer(shown, images)
    file = base64.b64decode(in_base64(images[0]))

    def body(url):
        content = [{"type": "image_url", "image_url": {"url": url}}, text("the cat")]
        return {"messages": [{"role": "user", "content": content}], "max_tokens": NEW_TOKENS, "temperature": 0}

    with site(file) as listed, site(file) as other:
        host, elsewhere = (f"http://127.0.0.1:{one.server_port}" for one in (listed, other))
        listed.targets["/to/other"] = f"{elsewhere}/cat.png"
        served = serve(model, options=("--media-host", f"127.0.0.1:{listed.server_port}"))
        for path in ("/cat.png", "/to/cat"):
            reply = served.server.ask("/v1/chat/completions", body(host + path) | {"return_token_ids": True})
            assert reply["choices"][0]["token_ids"] == ids
        for url, why in (
            (f"{elsewhere}/cat.png", "is no host that this server fetches from"),
            (f"{host}/to/other", "is no host that this server fetches from"),
            (f"{host}/to/self", "more than 4 redirects"),
            (f"{host}/none", "answers with the status 404"),
            (f"{host}/empty", "answers with nothing"),
            (f"http://user@127.0.0.1:{listed.server_port}/cat.png", "it is no URL of a host"),
            ("http://127.0.0.1/cat.png", "is no host that this server fetches from"),
        ):
            error = served.server.refused("/v1/chat/completions", body(url), 400)
            assert why in error["message"] and error["param"] == "messages[0].content[0].image_url.url"


@pytest.mark.parametrize(
    "host", ["http://images.example/", "images.example/cat.png", "images.example:x", "user@images"]
)
def test_what_is_no_media_host_is_refused_before_a_model_is_read(tmp_path, host):
    done = worker.run("serve", "--model", tmp_path / "none", "--media-host", host)
    assert done.returncode != 0 and f'--media-host is "{host}", expected HOST or HOST:PORT' in done.stderr


def test_a_folder_without_an_image_processor_serves_texts(serve, tmp_path):
    model = Model(tmp_path / "blind", PARTS)
    (model.folder / "preprocessor_config.json").unlink()
    blind = serve(model)
    check(blind, (["the cat sat on"],))
    sent, _, _ = conversation([picture(80), "a"])
    error = blind.server.refused("/v1/chat/completions", {"messages": sent}, 400)
    assert "preprocessor_config.json" in error["message"]


def test_a_tower_that_is_not_served_leaves_the_texts(serve, tmp_path):
    model = Model(tmp_path / "tower", PARTS)
    settings = json.loads((model.folder / "config.json").read_text())
    settings["vision_config"]["model_type"] = "unheard_of"
    (model.folder / "config.json").write_text(json.dumps(settings))
    blind = serve(model)
    check(blind, (["the cat sat on"],))
    sent, _, _ = conversation([picture(81), "a"])
    error = blind.server.refused("/v1/chat/completions", {"messages": sent}, 400)
    assert "images are not served" in error["message"] and "unheard_of" in error["message"]


def test_forward_gives_the_rows_of_images(served):
    given = served.model.prepared([picture(90), picture(91, 50, 20)])
    with torch.no_grad():
        made = served.model.model.model.get_image_features(**given)
    deep = getattr(made, "deepstack_features", None) or []
    parts = (made.pooler_output, *deep)  # tensors, or one for each image
    theirs = torch.cat(
        [rows if getattr(rows, "ndim", 0) == 2 else torch.cat(list(rows)) for rows in parts],
        1,
    )
    inputs = {name: tensor.tolist() for name, tensor in given.items()}
    ours = served.server.ask("/forward", {"inputs": inputs, "outputs": ["image_hidden_states"]})
    numpy.testing.assert_allclose(ours["outputs"]["image_hidden_states"]["data"], theirs, rtol=1e-4, atol=2e-4)
    error = served.server.refused("/forward", {"inputs": inputs | {"input_ids": [[5, served.model.image]]}}, 400)
    assert "1 tokens of images" in error["message"] and "pixel_values has 2 images of" in error["message"]
