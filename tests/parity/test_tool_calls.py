# SPDX-License-Identifier: Apache-2.0
"""Tool calls and reasoning of real servers with random models: a demanded call is valid for every form of calls,
streamed or not, and reasoning ends before a constraint begins. The client is OpenAI's package.
"""

import json
import re

import jsonschema_rs
import openai
import pytest
import tokenizers
import transformers
from server import Server
from test_endpoints import CORPUS, build
from tokenizers import models, pre_tokenizers

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Zürich", "日本", "a b"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 99},
        "where": {
            "type": "object",
            "properties": {"near": {"type": "boolean"}},
            "required": ["near"],
            "additionalProperties": False,
        },
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS, "strict": True}},
    {"type": "function", "function": {"name": "time", "description": "The time"}},
]
SCHEMAS = {"weather": PARAMETERS, "time": {"type": "object", "maxProperties": 0}}
MESSAGES = [{"role": "user", "content": "the cat sat"}]
ANSWER = {
    "type": "object",
    "properties": {"yes": {"type": "boolean"}},
    "required": ["yes"],
    "additionalProperties": False,
}
CHATML = """{% if tools %}<|im_start|>system
{{ tools | tojson }}{{ hint }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if m.reasoning_content %}R{{ m.reasoning_content }}{% endif %}{% for c in m.tool_calls %}\
<tool_call>{{ c.function.name }}{{ c.function.arguments.city }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if thinks %}<think>
{% endif %}{% endif %}"""


def tokenizer(template, special):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        tokenizers.decoders.ByteLevel(),
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300 + len(special),
        special_tokens=["<pad>", "</s>", *special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([" ".join(CORPUS)] * 3, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>")
    fast.chat_template = template
    return fast


SIZES = dict(vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
SIZES |= dict(num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=1, eos_token_id=1, pad_token_id=0)


def simple(before, after):
    return (
        "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}" + before + "{% if thinks %}" + after + "{% endif %}{% endif %}"
    )


FORMS = {
    "qwen": ("Qwen2ForCausalLM", transformers.Qwen2Config, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "llama": (
        "LlamaForCausalLM",
        transformers.LlamaConfig,
        simple("<|start_header_id|>assistant<|end_header_id|>\n\n", "<think>\n"),
        ["<|start_header_id|>", "<|end_header_id|>"],
    ),
    "mistral": (
        "MistralForCausalLM",
        transformers.MistralConfig,
        simple("[/INST]", "[THINK]"),
        ["[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/INST]"],
    ),
    "phi": (
        "Phi3ForCausalLM",
        transformers.Phi3Config,
        simple("<|assistant|>", "<think>"),
        ["<|tool_call|>", "<|/tool_call|>", "<|assistant|>", "<think>", "</think>"],
    ),
    "granite": (
        "GraniteForCausalLM",
        transformers.GraniteConfig,
        simple("<|start_of_role|>assistant<|end_of_role|>", "<think>"),
        ["<|tool_call|>", "<|start_of_role|>", "<|end_of_role|>"],
    ),
    "command": (
        "Cohere2ForCausalLM",
        transformers.Cohere2Config,
        simple("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|START_THINKING|>"),
        ["<|CHATBOT_TOKEN|>", "<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>"],
    ),
    "seed": (
        "SeedOssForCausalLM",
        transformers.SeedOssConfig,
        simple("<seed:bos>assistant\n", "<seed:think>"),
        ["<seed:bos>", "<seed:tool_call>", "</seed:tool_call>"],
    ),
}


class Served:
    def __init__(self, folder, name, **more):
        class_name, config, template, special = FORMS[name]
        build(folder, class_name, config(**SIZES), tokenizer(template, special))
        if more:
            file = folder / "tokenizer_config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | more))
        self.server = Server(folder, ranks=1)
        url = f"http://127.0.0.1:{self.server.port}/v1"
        self.client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)

    def ask(self, **body):
        body = {"model": self.server.folder.name, "messages": MESSAGES, "max_tokens": 900, "temperature": 1, **body}
        return self.client.chat.completions.create(**body)

    def streamed(self, **body):
        """The chunks, and the choice that they make."""
        chunks = list(self.ask(stream=True, **body))
        message, finish = {"content": "", "reasoning": "", "calls": []}, None
        for choice in [choice for chunk in chunks for choice in chunk.choices]:
            message["content"] += choice.delta.content or ""
            message["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
            assert getattr(choice.delta, "reasoning", None) == getattr(choice.delta, "reasoning_content", None)
            for call in choice.delta.tool_calls or []:
                if call.index == len(message["calls"]):
                    assert call.id and call.type == "function"
                    message["calls"].append([call.function.name, ""])
                message["calls"][call.index][1] += call.function.arguments or ""
            finish = choice.finish_reason or finish
        return chunks, message, finish


@pytest.fixture(scope="module", params=FORMS)
def served(request, tmp_path_factory):
    made = Served(tmp_path_factory.mktemp("tools") / f"tiny-{request.param}", request.param)
    yield made
    made.server.close()


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    made = Served(tmp_path_factory.mktemp("tools") / "tiny-qwen", "qwen")
    yield made
    made.server.close()


def check_calls(message, at_least=1):
    assert len(message.tool_calls) >= at_least
    for call in message.tool_calls:
        arguments = json.loads(call.function.arguments)
        assert jsonschema_rs.is_valid(SCHEMAS[call.function.name], arguments), call


def whole(message):
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls or []]
    return {"content": message.content or "", "reasoning": getattr(message, "reasoning", None) or "", "calls": calls}


def test_a_demanded_call_is_valid_streamed_or_not(served):
    for seed in range(4):
        body = dict(tools=TOOLS, tool_choice="required", seed=seed)
        [choice] = served.ask(**body).choices
        if choice.finish_reason == "length":
            continue  # reasoning without an end
        assert choice.finish_reason == "tool_calls", choice
        check_calls(choice.message)
        assert all(len(call.id) == 9 for call in choice.message.tool_calls)
        _, message, finish = served.streamed(**body)
        assert finish == "tool_calls" and message == whole(choice.message)


def test_the_tool_that_is_named_is_called_once(served):
    named = {"type": "function", "function": {"name": "weather"}}
    for seed in range(3):
        [choice] = served.ask(tools=TOOLS, tool_choice=named, seed=seed).choices
        if choice.finish_reason != "length":
            check_calls(choice.message)
            assert [call.function.name for call in choice.message.tool_calls] == ["weather"]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOLS[1]]}}
    [choice] = served.ask(tools=TOOLS, tool_choice=allowed, seed=1, parallel_tool_calls=False).choices
    assert choice.finish_reason == "length" or [c.function.name for c in choice.message.tool_calls] == ["time"]


def test_reasoning_ends_before_a_constraint_begins(served):
    thinks = {"chat_template_kwargs": {"thinks": True}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER}}
    ended = 0
    for seed in range(6):
        body = dict(response_format=form, seed=seed, extra_body=thinks, max_tokens=1500)
        try:
            [choice] = served.ask(**body).choices
        except openai.BadRequestError as error:
            assert "does not say how it ends" in str(error)
            return
        if choice.finish_reason == "stop":
            ended += 1
            assert jsonschema_rs.is_valid(ANSWER, json.loads(choice.message.content))
            assert whole(choice.message) == served.streamed(**body)[1]
        else:
            assert not choice.message.content
        [plain] = served.ask(response_format=form, seed=seed, max_tokens=1500).choices
        if plain.finish_reason == "stop":
            assert jsonschema_rs.is_valid(ANSWER, json.loads(plain.message.content)), plain


def test_function_tags_where_the_prompt_has_them(qwen):
    for seed in range(4):
        body = dict(tools=TOOLS, tool_choice="required", seed=seed)
        [choice] = qwen.ask(**body, extra_body={"chat_template_kwargs": {"hint": "<function=name>"}}).choices
        if choice.finish_reason != "length":
            check_calls(choice.message)


def test_messages_are_sent_back(qwen):
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Zug"}'}}
    answer = {"role": "assistant", "content": None, "reasoning": "why", "tool_calls": [call]}
    messages = [*MESSAGES, answer, {"role": "tool", "tool_call_id": "a", "content": "rain"}]
    reply = qwen.ask(messages=messages, tools=TOOLS, max_tokens=4, extra_body={"ignore_eos": True})
    assert reply.usage.completion_tokens == 4


def test_token_ids_and_log_probabilities_belong_to_all_of_the_reply(qwen):
    body = dict(tools=TOOLS, tool_choice="required", seed=2, logprobs=True, extra_body={"return_token_ids": True})
    [choice] = qwen.ask(**body).choices
    chunks, message, _ = qwen.streamed(**body)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert message == whole(choice.message)
    assert [id for one in choices for id in getattr(one, "token_ids", None) or []] == choice.token_ids
    assert sum(len(one.logprobs.content) for one in choices if one.logprobs) == len(choice.token_ids)


def test_without_tools_calls_are_content(qwen):
    for choice in ("auto", "none"):
        [made] = qwen.ask(max_tokens=8, **(dict(tools=TOOLS, tool_choice="none") if choice == "none" else {})).choices
        assert not made.message.tool_calls and made.finish_reason in ("length", "stop")


def odd_tool(strict):
    """A tool with a schema that no constraint can hold."""
    return {"type": "function", "function": {"name": "f", "parameters": {"not": {}}, "strict": strict}}


def custom(name, **grammar):
    """A tool whose input is a text."""
    form = {"type": "grammar", "grammar": grammar} if grammar else {"type": "text"}
    return {"type": "custom", "custom": {"name": name, "description": "Runs it.", "format": form}}


REFUSED = {
    "no tools": (dict(tool_choice="required"), "tools is missing"),
    "unknown tool": (dict(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "x"}}), "one of tools"),
    "another choice": (dict(tools=TOOLS, tool_choice="any"), "required"),
    "schema": (dict(tools=[odd_tool(strict=True)], tool_choice="required"), "the tool f: .*not"),
    "schema of a tool that may be called": (dict(tools=[odd_tool(strict=True)]), "strict of tools .*not"),
    "tool of another type": (dict(tools=[{"type": "web_search"}]), "no tools of its own"),
    "lark grammar": (
        dict(tools=[custom("f", syntax="lark", definition="start: /a/")], tool_choice="required"),
        "the tool f: a Lark grammar",
    ),
}


def test_what_cannot_be_demanded_is_refused(qwen):
    for name, (body, reason) in REFUSED.items():
        with pytest.raises(openai.BadRequestError, match=reason):
            qwen.ask(**body)
            raise AssertionError(name)


def test_a_demanded_tool_that_is_not_strict_takes_any_object(qwen):
    ended = 0
    for seed in range(8):
        [choice] = qwen.ask(tools=[odd_tool(strict=False)], tool_choice="required", seed=seed, max_tokens=60).choices
        if choice.finish_reason == "length":
            continue
        ended += 1
        for call in choice.message.tool_calls:
            assert call.function.name == "f" and isinstance(json.loads(call.function.arguments), dict)
    assert ended > 0


PATCH = r"(\*\*\* [a-z]{1,6}\n)([+-][\"'/\\\\\t]{0,3}\n){1,2}end"


def test_the_input_of_a_demanded_custom_tool_follows_its_expression(tmp_path):
    served = Served(tmp_path / "tiny-mistral", "mistral")  # a form without reasoning, which may have no end
    tools = [custom("patch", syntax="regex", definition=PATCH), *TOOLS]
    most = 0
    try:
        for seed in range(4):
            body = dict(tools=tools, tool_choice={"type": "custom", "custom": {"name": "patch"}}, seed=seed)
            [made] = served.ask(**body).choices
            assert made.finish_reason == "tool_calls"
            [call] = made.message.tool_calls
            assert call.type == "custom" and call.custom.name == "patch" and len(call.id) == 9
            assert re.fullmatch(PATCH, call.custom.input), call.custom.input
            chunks = [choice for chunk in served.ask(stream=True, **body) for choice in chunk.choices]
            pieces = [piece for one in chunks for piece in one.delta.tool_calls or []]
            assert pieces[0].type == "custom" and pieces[0].custom["name"] == "patch"
            most = max(most, len(pieces))
            assert "".join(piece.custom["input"] for piece in pieces) == call.custom.input
        assert most > 2, "tokens that wait together for a busy machine come as one piece"
    finally:
        served.server.close()


def test_a_custom_tool_of_text_is_called_by_every_form(served):
    """Also by forms that write parameters as XML, where the input is no JSON."""
    ended = 0
    for seed in range(4):
        choice = {"type": "custom", "custom": {"name": "patch"}}
        [made] = served.ask(tools=[custom("patch"), *TOOLS], tool_choice=choice, seed=seed, max_tokens=300).choices
        if made.message.tool_calls:
            assert made.message.tool_calls[0].custom.name == "patch"
        ended += made.finish_reason == "tool_calls"
        if ended:
            return
    # a random model may write a text without an end
    assert made.finish_reason == "length"


def test_earlier_calls_of_custom_tools_reach_the_template(qwen):
    call = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "x"}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [*MESSAGES, answer, {"role": "tool", "tool_call_id": "a", "content": "done"}]
    same = {"id": "a", "type": "function", "function": {"name": "patch", "arguments": '{"input": "x"}'}}
    tokens = [
        qwen.ask(messages=[*MESSAGES, {**answer, "tool_calls": [one]}, messages[-1]], max_tokens=1).usage.prompt_tokens
        for one in (call, same)
    ]
    assert tokens[0] == tokens[1]


def test_a_reply_that_may_call_strict_tools_is_text_or_calls_of_their_schemas(qwen):
    for seed in range(6):
        reply = qwen.ask(tools=TOOLS, temperature=1.0, seed=seed, max_tokens=40).choices[0]
        assert reply.finish_reason in ("stop", "length", "tool_calls")
        for call in reply.message.tool_calls or []:
            assert call.function.name in SCHEMAS
            if call.function.name == "weather" and reply.finish_reason != "length":
                assert jsonschema_rs.is_valid(PARAMETERS, json.loads(call.function.arguments))


def test_the_template_of_the_checkpoint_goes_first(tmp_path):
    template = {
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "thinking": {"open_pattern": "<think>", "close": "e"},
            "content": {"open": "<a>", "close": "</a>"},
            "tool_calls": {
                "open": "{{",
                "close": "}}",
                "content": "json",
                "transform": {"function": "{content}"},
            },
        },
    }
    made = Served(tmp_path / "own", "qwen", response_template=template)
    try:
        [choice] = made.ask(extra_body={"chat_template_kwargs": {"thinks": True}}, max_tokens=200, seed=1).choices
        assert "e" not in choice.message.reasoning and not choice.message.content
        with pytest.raises(openai.BadRequestError, match="how a call is written"):
            made.ask(tools=TOOLS, tool_choice="required")
    finally:
        made.server.close()
    broken = Served(tmp_path / "broken", "qwen", response_template={"fields": 3})
    try:
        assert broken.ask(max_tokens=4).usage.completion_tokens == 4
        text = (tmp_path / "broken.log").read_text()
        assert text.count("response_template of tokenizer_config.json is not used") == 1 and "fields" in text
    finally:
        broken.server.close()
