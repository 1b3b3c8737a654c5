# SPDX-License-Identifier: Apache-2.0
"""Generation routes of a real server with two ranks in processes: /generate and /generate_text against transformers'
generate, OpenAI's routes through the official client against greedy answers and log-probabilities of transformers.
"""

import json
import math
import re

import openai
import pytest
import requests
import tokenizers
import torch
import transformers
from server import Server
from test_endpoints import CORPUS, build
from tokenizers import models, pre_tokenizers, processors

CHAT = """{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + eos_token }}{% endfor %}{% if \
add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""
PROMPTS = ["the cat sat", "Anna Smith saw seven dogs", "a", "water é 日本"]


def pieces(template=None):
    """Byte-level with a few merges; </s> ends, <pad> is also a decoder's start."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        tokenizers.decoders.ByteLevel(),
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(CORPUS)] * 3, trainer)
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("</s>", 1)])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>")
    made.chat_template = CHAT
    return made


class Served:
    def __init__(self, folder, class_name, config, tokenizer, change=lambda folder: None):
        self.tokenizer, self.model = tokenizer, build(folder, class_name, config, tokenizer)
        change(folder)
        self.server = Server(folder)
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=120)
        self.name = folder.name

    def theirs(self, text, **parameters):
        """What transformers' generate gives for one text, scores of beams included."""
        more = {"tokenizer": self.tokenizer} if "stop_strings" in parameters else {}
        with torch.no_grad():
            made = self.model.generate(
                **self.tokenizer(text, return_tensors="pt"),
                **parameters,
                **more,
                return_dict_in_generate=True,
                output_scores=True,
            )
        sequences = [self.trimmed(row.tolist()) for row in made.sequences]
        scores = made.sequences_scores.tolist() if parameters.get("num_beams", 1) > 1 else None
        return sequences, self.tokenizer.batch_decode(made.sequences, skip_special_tokens=True), scores

    def trimmed(self, ids):
        """Without the padding behind the end."""
        while len(ids) > 1 and ids[-1] == self.tokenizer.pad_token_id:
            ids = ids[:-1]
        return ids

    def greedy(self, ids, count):
        """Tokens and the log-probabilities of every token at each place."""
        with torch.no_grad():
            made = self.model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=count,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
        return made.sequences[0, len(ids) :].tolist(), [torch.log_softmax(row[0].float(), -1) for row in made.logits]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    config = transformers.GPT2Config(
        vocab_size=300, n_embd=24, n_head=4, n_layer=2, n_positions=96, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    served = Served(tmp_path_factory.mktemp("routes") / "tiny-gpt2", "GPT2LMHeadModel", config, pieces())
    yield served
    served.server.close()


@pytest.fixture(scope="module")
def encoder_decoder(tmp_path_factory):
    config = transformers.T5Config(
        vocab_size=300,
        d_model=24,
        d_kv=6,
        d_ff=40,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    served = Served(
        tmp_path_factory.mktemp("routes") / "tiny-t5", "T5ForConditionalGeneration", config, pieces("$A </s>")
    )
    yield served
    served.server.close()


PARAMETERS = [
    {},
    {"max_length": 30},
    {"max_new_tokens": 12, "repetition_penalty": 1.4},
    {"max_new_tokens": 12, "no_repeat_ngram_size": 2},
    {"min_new_tokens": 9, "max_new_tokens": 12},
    {"num_beams": 5, "no_repeat_ngram_size": 4, "max_length": 35},  # the walk-through of the predecessor
    {"num_beams": 4, "num_return_sequences": 3, "early_stopping": True, "length_penalty": 0.5, "max_new_tokens": 12},
    {"num_beams": 3, "early_stopping": "never", "length_penalty": 2.0, "max_new_tokens": 10, "min_length": 8},
    {"num_beams": 2, "num_return_sequences": 2, "bad_words_ids": [[30], [40, 41]], "max_new_tokens": 8},
]


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_generate_answers_what_transformers_answers(request, kind, parameters):
    served = request.getfixturevalue(kind)
    for text in PROMPTS:
        sequences, texts, scores = served.theirs(text, **parameters)
        answer = served.server.ask(
            "/generate", {"inputs": text, "parameters": {**parameters, "return_token_ids": True}}
        )
        answer = answer if isinstance(answer, list) else [answer]
        assert [one["sequence"] for one in answer] == sequences
        assert [one["generated_text"] for one in answer] == texts
        if scores:
            assert [one["score"] for one in answer] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("parameters", [{}, {"num_beams": 3}], ids=str)
@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_a_logit_bias_is_added_as_transformers_adds_a_sequence_bias(request, kind, parameters):
    served = request.getfixturevalue(kind)
    plain = served.theirs(PROMPTS[0], max_new_tokens=10, **parameters)[0]
    bias = {17: 0.1, 40: -100.0, 55: 0.05, plain[0][-1]: -100.0}
    wanted = served.theirs(
        PROMPTS[0], max_new_tokens=10, sequence_bias={(id,): value for id, value in bias.items()}, **parameters
    )[0]
    assert wanted != plain
    body = {"max_new_tokens": 10, "logit_bias": {str(id): value for id, value in bias.items()}, **parameters}
    answer = served.server.ask("/generate", {"inputs": PROMPTS[0], "return_token_ids": True, **body})
    assert [one["sequence"] for one in (answer if isinstance(answer, list) else [answer])] == wanted


def test_several_inputs_and_ids_are_answered_each_as_alone(decoder):
    parameters = {"max_new_tokens": 8}
    alone = [decoder.theirs(text, **parameters)[1][0] for text in PROMPTS]
    assert [
        one["generated_text"] for one in decoder.server.ask("/generate", {"inputs": PROMPTS, "parameters": parameters})
    ] == alone
    ids = [decoder.tokenizer(text)["input_ids"] for text in PROMPTS]
    assert [one["generated_text"] for one in decoder.server.ask("/generate", {"input_ids": ids, **parameters})] == alone


def test_a_stop_string_ends_the_answer_where_transformers_ends_it(decoder):
    plain = decoder.theirs(PROMPTS[0], max_new_tokens=20)[1][0]
    stop = re.findall("[ -~]+", plain[len(PROMPTS[0]) + 3 : -3])[0]
    wanted = decoder.theirs(PROMPTS[0], max_new_tokens=20, stop_strings=[stop])[1][0]
    assert len(wanted) < len(plain)
    assert (
        decoder.server.ask("/generate", {"inputs": PROMPTS[0], "max_new_tokens": 20, "stop_strings": [stop]})[
            "generated_text"
        ]
        == wanted
    )


def test_generate_text_takes_the_walk_through_of_the_predecessor(decoder):
    wanted = decoder.theirs("Parallelformers is", num_beams=5, no_repeat_ngram_size=4, max_length=40)[1][0]
    reply = decoder.server.get("/generate_text/Parallelformers%20is?num_beams=5&no_repeat_ngram_size=4&max_length=40")
    assert reply.json() == {"inputs": "Parallelformers is", "outputs": wanted}


def test_what_a_request_leaves_out_is_as_the_generation_config_says(tmp_path):
    def change(folder):
        path = folder / "generation_config.json"
        path.write_text(
            json.dumps(
                {
                    **json.loads(path.read_text()),
                    "num_beams": 3,
                    "length_penalty": 0.3,
                    "max_length": 31,
                    "no_repeat_ngram_size": 2,
                    "early_stopping": True,
                }
            )
        )

    config = transformers.GPT2Config(
        vocab_size=300, n_embd=24, n_head=4, n_layer=2, n_positions=96, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    served = Served(tmp_path / "tuned", "GPT2LMHeadModel", config, pieces(), change)
    try:
        served.model.generation_config = transformers.GenerationConfig.from_pretrained(tmp_path / "tuned")
        for text in PROMPTS:
            assert (
                served.server.get(f"/generate_text/{requests.utils.quote(text)}").json()["outputs"]
                == served.theirs(text)[1][0]
            )
            assert (
                served.server.ask("/generate", {"inputs": text, "num_beams": 1})["generated_text"]
                == served.theirs(text, num_beams=1)[1][0]
            )
    finally:
        served.server.close()


def test_a_stream_of_generate_ends_with_the_whole_text(decoder):
    reply = requests.post(
        decoder.url + "/generate",
        json={"inputs": PROMPTS[1], "stream": True, "parameters": {"max_new_tokens": 10, "details": True}},
        timeout=60,
    )
    events = [json.loads(line[6:]) for line in reply.content.decode().split("\n\n") if line]
    text = decoder.theirs(PROMPTS[1], max_new_tokens=10)[1][0]
    assert events[-1]["generated_text"] == text and all(event["generated_text"] is None for event in events[:-1])
    assert text.startswith(
        PROMPTS[1] + "".join(event["token"]["text"] for event in events if not event["token"]["special"]).rstrip("�")
    )


def test_completions_through_the_official_client(decoder):
    ids = decoder.tokenizer(PROMPTS[0])["input_ids"]
    tokens, logprobs = decoder.greedy(ids, 12)
    text = decoder.tokenizer.decode(tokens, skip_special_tokens=True)
    for prompt in (PROMPTS[0], ids):
        answer = decoder.client.completions.create(
            model=decoder.name,
            prompt=prompt,
            max_tokens=12,
            temperature=0,
            logprobs=3,
            n=2,
            extra_body={"return_token_ids": True},
        )
        assert [choice.text for choice in answer.choices] == [text, text]
        assert answer.choices[0].token_ids == tokens
        assert answer.usage.prompt_tokens == len(ids) and answer.usage.completion_tokens == 2 * len(tokens)
    given = answer.choices[0].logprobs
    assert given.token_logprobs == pytest.approx([row[token].item() for row, token in zip(logprobs, tokens)], abs=1e-4)
    for best, row in zip(given.top_logprobs, logprobs):
        assert max(best.values()) == pytest.approx(row.max().item(), abs=1e-4) and len(best) in (2, 3, 4)
    assert given.text_offset[0] == 0 and given.text_offset == sorted(given.text_offset)
    echoed = decoder.client.completions.create(
        model=decoder.name, prompt=PROMPTS[0], max_tokens=12, temperature=0, echo=True
    )
    assert echoed.choices[0].text == PROMPTS[0] + text


def test_streamed_completions_through_the_official_client(decoder):
    texts = ["", ""]
    stream = decoder.client.completions.create(
        model=decoder.name,
        prompt=PROMPTS[:2],
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    usage, finished = None, 0
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            finished += choice.finish_reason is not None
    for text, prompt in zip(texts, PROMPTS):
        assert text == decoder.tokenizer.decode(
            decoder.greedy(decoder.tokenizer(prompt)["input_ids"], 12)[0], skip_special_tokens=True
        )
    assert finished == 2 and usage.completion_tokens <= 24 and usage.prompt_tokens_details.cached_tokens >= 0


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "the cat"},
    {"role": "assistant", "content": "sat"},
    {"role": "user", "content": "on?"},
]


def conversation(decoder, count):
    ids = decoder.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=True)["input_ids"]
    return ids, *decoder.greedy(ids, count)


def test_chats_through_the_official_client(decoder):
    ids, tokens, logprobs = conversation(decoder, 10)
    answer = decoder.client.chat.completions.create(
        model=decoder.name, messages=MESSAGES, max_completion_tokens=10, temperature=0, logprobs=True, top_logprobs=2
    )
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content == decoder.tokenizer.decode(
        tokens, skip_special_tokens=True
    )
    assert answer.usage.prompt_tokens == len(ids), "the template's tokens and no more"
    assert [token.logprob for token in choice.logprobs.content] == pytest.approx(
        [row[token].item() for row, token in zip(logprobs, tokens)], abs=1e-4
    )
    for token, row in zip(choice.logprobs.content, logprobs):
        assert [one.logprob for one in token.top_logprobs] == pytest.approx(row.topk(2).values.tolist(), abs=1e-4)
        assert token.bytes is None or bytes(token.bytes).decode() == token.token
    free = decoder.client.chat.completions.create(model=decoder.name, messages=MESSAGES, temperature=0)
    assert free.choices[0].finish_reason in ("stop", "length")
    assert free.usage.total_tokens == 96 or free.choices[0].finish_reason == "stop"


def test_streamed_chats_through_the_official_client(decoder):
    """Tokens that have arrived when the thread of the request looks are sent together, but not every time."""
    _, tokens, _ = conversation(decoder, 10)
    for _ in range(10):
        stream = decoder.client.chat.completions.create(
            model=decoder.name, messages=MESSAGES, max_completion_tokens=10, temperature=0, stream=True
        )
        chunks = list(stream)
        assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
        given = [chunk.choices[0].delta.content for chunk in chunks[1:-1]]
        assert "".join(given) == decoder.tokenizer.decode(tokens, skip_special_tokens=True)
        assert chunks[-1].choices[0].finish_reason in ("stop", "length") and chunks[-1].choices[0].delta.content is None
        if len(given) > 1:
            return
    pytest.fail("ten streams came in one piece each")


def test_several_sampled_answers_are_drawn_again_by_their_seed(decoder):
    def ask(seed):
        answer = decoder.client.chat.completions.create(
            model=decoder.name, messages=MESSAGES, max_tokens=8, temperature=1.5, seed=seed, n=3
        )
        return [choice.message.content for choice in answer.choices]

    first = ask(5)
    assert len(first) == 3 and len(set(first)) > 1 and first == ask(5) and first != ask(6)


def test_errors_reach_the_official_client_by_name(decoder, encoder_decoder):
    with pytest.raises(openai.BadRequestError) as error:
        decoder.client.chat.completions.create(model=decoder.name, messages=MESSAGES, response_format={"type": "xml"})
    assert error.value.param == "response_format.type"
    with pytest.raises(openai.NotFoundError):
        decoder.client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError, match="beam|num_beams"):
        decoder.client.post("/../generate", body={"inputs": "a", "num_beams": 2, "stream": True}, cast_to=object)
    assert (
        encoder_decoder.server.refused("/generate", {"inputs": "a", "num_beam": 2}, 400)["message"].count("num_beams")
        >= 1
    )


def test_max_time_ends_an_answer_that_takes_longer(decoder):
    answer = decoder.server.ask(
        "/generate",
        {"inputs": "a", "parameters": {"max_new_tokens": 90, "max_time": 1e-6, "details": True, "eos_token_id": 299}},
    )
    assert answer["details"]["finish_reason"] == "length" and answer["details"]["generated_tokens"] <= 2
    assert all(math.isfinite(token["logprob"]) for token in answer["details"]["tokens"])
