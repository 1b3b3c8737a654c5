# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Messages API and OpenAI's Responses API of a real server, through the official clients and their helpers
for streams. The answers are transformers' greedy ones to the same conversation.
"""

import json

import anthropic
import openai
import pydantic
import pytest
import requests
import transformers
from server import Server
from test_endpoints import build
from test_serving_routes import Served, pieces

TEMPLATE = """{% if tools %}{{ (tools | tojson)[:30] }}{% endif %}{% for m in messages %}<|{{ m.role }}|>{% if \
m.reasoning_content %}<t>{{ m.reasoning_content }}</t>{% endif %}{% if m.content is string %}{{ m.content }}{% endif %}\
{% for c in m.tool_calls or [] %}<c>{{ c.function.name }}{{ c.function.arguments | tojson }}</c>{% endfor %}{{ \
eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
COUNT = 10


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    config = transformers.GPT2Config(
        vocab_size=300, n_embd=24, n_head=4, n_layer=2, n_positions=256, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    tokenizer = pieces()
    tokenizer.chat_template = TEMPLATE
    served = Served(tmp_path_factory.mktemp("wire") / "tiny-gpt2", "GPT2LMHeadModel", config, tokenizer)
    served.anthropic = anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=120)
    yield served
    served.server.close()


def theirs(decoder, messages, tools=None, **more):
    """The number of tokens of the prompt, and the text of transformers' greedy answer."""
    more = more or {"add_generation_prompt": True}
    ids = decoder.tokenizer.apply_chat_template(messages, tools=tools, return_dict=True, **more)["input_ids"]
    return len(ids), decoder.tokenizer.decode(decoder.greedy(ids, COUNT)[0], skip_special_tokens=True)


def tokens_in(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def message(decoder, **body):
    return decoder.anthropic.messages.create(model=decoder.name, max_tokens=COUNT, **body)


TURNS = [
    {"role": "user", "content": [{"type": "text", "text": "the cat", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I look.", "signature": "x"},
            {"type": "text", "text": "One moment."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Rom", "at": 3}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a dog"}]},
]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "the cat"},
    {
        "role": "assistant",
        "reasoning_content": "I look.",
        "content": "One moment.",
        "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"city": "Rom", "at": 3}}}],
    },
    {"role": "tool", "name": "look", "content": "a dog"},
]
FUNCTION = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}
AGENT = dict(
    system="Be brief.",
    messages=TURNS,
    tools=[{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
    tool_choice={"type": "auto"},
    metadata={"user_id": "u"},
)


def test_an_agents_conversation_is_answered_as_the_chat_that_it_stands_for(decoder):
    count, text = theirs(decoder, CHAT, [FUNCTION])
    answer = message(decoder, **AGENT)
    assert answer.type == "message" and answer.role == "assistant" and answer.model == decoder.name
    assert [block.text for block in answer.content] == [text]
    assert tokens_in(answer.usage) == count and 0 < answer.usage.output_tokens <= COUNT
    assert answer.stop_reason in ("end_turn", "max_tokens") and answer.stop_sequence is None
    body = {name: value for name, value in AGENT.items() if name != "metadata"}
    assert decoder.anthropic.messages.count_tokens(model=decoder.name, **body).input_tokens == count


def test_the_streaming_helper_gives_the_same_message(decoder):
    _, text = theirs(decoder, CHAT, [FUNCTION])
    with decoder.anthropic.messages.stream(model=decoder.name, max_tokens=COUNT, **AGENT) as stream:
        assert "".join(stream.text_stream) == text
        final = stream.get_final_message()
    whole = message(decoder, **AGENT)
    assert [block.text for block in final.content] == [text]
    assert final.stop_reason == whole.stop_reason and tokens_in(final.usage) == tokens_in(whole.usage)
    assert final.usage.output_tokens == whole.usage.output_tokens
    events = list(message(decoder, stream=True, **AGENT))
    assert events[0].type == "message_start" and events[-1].type == "message_stop"


def test_the_assistants_last_turn_is_continued(decoder):
    turns = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on"}]
    count, text = theirs(decoder, turns, continue_final_message=True)
    answer = message(decoder, messages=turns)
    assert answer.content[0].text == text and tokens_in(answer.usage) == count


def test_stop_sequences_and_the_window_end_a_message(decoder):
    turns = [{"role": "user", "content": "the cat"}]
    _, text = theirs(decoder, turns)
    stop = next(text[i : i + 2] for i in range(2, len(text) - 2) if text[i : i + 2].isascii())
    answer = message(decoder, messages=turns, stop_sequences=["never", stop])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
    assert "".join(block.text for block in answer.content) == text[: text.index(stop)]
    body = dict(model=decoder.name, max_tokens=64_000, messages=turns, extra_body={"ignore_eos": True})
    answer = decoder.anthropic.messages.create(**body)
    assert answer.stop_reason == "model_context_window_exceeded"
    assert tokens_in(answer.usage) + answer.usage.output_tokens == 256


def test_a_message_follows_a_schema(decoder):
    answer = decoder.anthropic.messages.create(
        model=decoder.name,
        max_tokens=200,
        messages=[{"role": "user", "content": "a"}],
        output_config={"format": {"type": "json_schema", "schema": {"enum": ["red", "blue"]}}},
    )
    assert json.loads(answer.content[0].text) in ("red", "blue") and answer.stop_reason == "end_turn"


def test_errors_reach_anthropics_client_by_their_kind(decoder):
    with pytest.raises(anthropic.NotFoundError) as missing:
        decoder.anthropic.messages.create(model="claude", max_tokens=1, messages=[{"role": "user", "content": "a"}])
    assert missing.value.body["error"]["type"] == "not_found_error" and missing.value.request_id
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].content\[0\].type"):
        image = {"type": "image", "source": {"type": "url", "url": "https://example.com"}}
        message(decoder, messages=[{"role": "user", "content": [image]}])
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        decoder.anthropic.messages.create(model=decoder.name, max_tokens=0, messages=TURNS)
    with pytest.raises(anthropic.BadRequestError, match="tools of its own"):
        message(decoder, messages=TURNS, tools=[{"type": "web_search_20250305", "name": "web_search"}])


def response(decoder, **body):
    return decoder.client.responses.create(model=decoder.name, max_output_tokens=COUNT, temperature=0, **body)


ITEMS = [
    {"role": "user", "content": "the cat"},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "I look."}],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "One moment.", "annotations": []}],
    },
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"city": "Rom", "at": 3}'},
    {"type": "function_call_output", "call_id": "c1", "output": "a dog"},
]
CODING = dict(
    instructions="Be brief.",
    input=ITEMS,
    tools=[{"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": None}],
    tool_choice="auto",
    parallel_tool_calls=False,
    reasoning={"effort": "low", "summary": "auto"},
    include=["reasoning.encrypted_content"],
    prompt_cache_key="k",
    store=False,
)


def test_a_coding_agents_items_are_answered_as_the_chat_that_they_stand_for(decoder):
    count, text = theirs(decoder, CHAT, [FUNCTION])
    answer = response(decoder, **CODING)
    assert answer.output_text == text and answer.usage.input_tokens == count
    assert answer.status == ("completed" if answer.usage.output_tokens < COUNT else "incomplete")
    assert answer.output[0].type == "message" and answer.store is False
    assert answer.usage.total_tokens == count + answer.usage.output_tokens
    with pytest.raises(openai.NotFoundError):
        decoder.client.responses.retrieve(answer.id)


def test_the_events_of_a_response_join_to_it(decoder):
    _, text = theirs(decoder, CHAT, [FUNCTION])
    deltas, last = "", None
    for number, event in enumerate(response(decoder, stream=True, **CODING)):
        assert event.sequence_number == number
        deltas += event.delta if event.type == "response.output_text.delta" else ""
        last = event
    assert deltas == text == last.response.output_text
    assert last.type in ("response.completed", "response.incomplete")
    body = dict(model=decoder.name, temperature=0, input="a", text={"format": {"type": "json_object"}})
    with decoder.client.responses.stream(**body) as stream:
        for event in stream:
            last = event
    assert last.response.output_text.startswith("{")


def test_tokens_of_a_response_are_counted_before_it_is_made(decoder):
    body = dict(instructions="Be brief.", input="the cat")
    counted = decoder.client.responses.input_tokens.count(model=decoder.name, **body)
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == response(decoder, **body).usage.input_tokens


def test_a_parsed_response_follows_its_model(decoder):
    class Answer(pydantic.BaseModel):
        yes: bool

    answer = decoder.client.responses.parse(model=decoder.name, input="a", text_format=Answer)
    assert isinstance(answer.output_parsed, Answer) and answer.status == "completed"
    with decoder.client.responses.stream(model=decoder.name, input="a", text_format=Answer) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Answer)


def test_a_response_is_continued_by_its_id(decoder):
    first = response(decoder, input="the cat", instructions="Be brief.")
    chat = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": first.output_text}]
    _, text = theirs(decoder, [*chat, {"role": "user", "content": "and?"}])
    second = response(decoder, input="and?", previous_response_id=first.id)
    assert second.output_text == text and second.previous_response_id == first.id
    assert decoder.client.responses.retrieve(first.id).output_text == first.output_text
    decoder.client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError) as error:
        response(decoder, input="and?", previous_response_id=first.id)
    assert error.value.param == "previous_response_id"


def test_the_items_that_led_to_a_response_are_listed(decoder):
    first = response(decoder, input=ITEMS, instructions="Be brief.", extra_body={"ignore_eos": True})
    second = response(decoder, input="and?", previous_response_id=first.id)
    items = list(decoder.client.responses.input_items.list(second.id, order="asc", limit=2))  # by pages of two
    said = [item.type for item in first.output]  # nothing where a random model writes special tokens only
    assert [item.type for item in items] == [*(item.get("type", "message") for item in ITEMS), *said, "message"]
    assert len({item.id for item in items}) == len(items) and items[2].id == "msg_1"
    assert [type(item).__name__ for item in items] == [
        "ResponseInputMessageItem",
        "ResponseReasoningItem",
        "ResponseOutputMessage",
        "ResponseFunctionToolCallItem",
        "ResponseFunctionToolCallOutputItem",
        *("ResponseOutputMessage" for _ in said),
        "ResponseInputMessageItem",
    ]
    assert items[0].content[0].text == "the cat" and items[4].output == "a dog"
    assert [item.to_dict() for item in items[5:-1]] == [item.to_dict() for item in first.output]
    page = decoder.client.responses.input_items.list(second.id)
    assert [item.id for item in page.data] == [item.id for item in reversed(items)] and page.has_more is False
    first_page = decoder.client.responses.input_items.list(
        first.id, order="asc", include=["reasoning.encrypted_content"]
    )
    assert [item.id for item in first_page.data] == [item.id for item in items[:5]]
    for refused, error in (
        (dict(response_id="resp_0"), openai.NotFoundError),
        (dict(response_id=first.id, limit=0), openai.BadRequestError),
        (dict(response_id=first.id, after="msg_0"), openai.BadRequestError),
    ):
        with pytest.raises(error):
            decoder.client.responses.input_items.list(**refused)


def test_errors_reach_openais_client_by_the_names_of_responses(decoder):
    for body, param in (
        ({"input": "a", "text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": "a " * 300}, "input"),
        (
            {"input": "a", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"not": {}}}}},
            "text.format",
        ),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            response(decoder, **body)
        assert error.value.param.startswith(param)


def test_unknown_fields_are_ignored_and_named(decoder):
    body = dict(model=decoder.name, max_tokens=1, messages=[{"role": "user", "content": "a", "mood": 1}])
    raw = decoder.anthropic.messages.with_raw_response.create(**body, extra_body={"plugins": []})
    assert raw.headers["x-ignored-fields"] == "messages[0].mood, plugins"
    raw = decoder.client.chat.completions.with_raw_response.create(**body)
    assert raw.headers["x-ignored-fields"] == "messages[0].mood"
    raw = decoder.client.responses.with_raw_response.create(model=decoder.name, input="a", extra_body={"plugins": []})
    assert raw.headers["x-ignored-fields"] == "plugins"


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_schemas_of_tools_may_be_nested_deeply(decoder):
    turns = [{"role": "user", "content": "a"}]
    for levels, works in ((400, True), (600, False)):
        tool = {"name": "f", "input_schema": nested(levels)}
        if works:
            assert message(decoder, messages=turns, tools=[tool]).content
        else:
            with pytest.raises(anthropic.BadRequestError, match="deeper than 512 levels"):
                message(decoder, messages=turns, tools=[tool])


def test_a_server_may_be_strict_and_takes_keys_in_both_headers(tmp_path):
    config = transformers.GPT2Config(
        vocab_size=300, n_embd=24, n_head=4, n_layer=2, n_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    build(tmp_path / "strict", "GPT2LMHeadModel", config, pieces())
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "one").write_text("sk-1\n")
    server = Server(tmp_path / "strict", options=["--strict-requests", "--api-keys-dir", tmp_path / "keys"])
    try:
        url = f"http://127.0.0.1:{server.port}"
        body = dict(model="strict", max_tokens=1, messages=[{"role": "user", "content": "a"}])
        for login in ({"api_key": "sk-1"}, {"auth_token": "sk-1"}):
            client = anthropic.Anthropic(base_url=url, max_retries=0, **login)
            assert client.messages.create(**body).usage.output_tokens == 1
        with pytest.raises(anthropic.BadRequestError, match="plugins is no field"):
            client.messages.create(**body, extra_body={"plugins": []})
        with pytest.raises(anthropic.AuthenticationError) as error:
            anthropic.Anthropic(base_url=url, api_key="sk-2", max_retries=0).messages.create(**body)
        assert error.value.body["error"]["code"] == "invalid_api_key"
        client = openai.OpenAI(base_url=url + "/v1", api_key="sk-1", max_retries=0)
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(model="strict", input="a", extra_body={"plugins": []})
        assert error.value.code == "unknown_field"
        assert requests.get(url + "/v1/models", headers={"x-api-key": "sk-1"}, timeout=10).status_code == 200
    finally:
        server.close()
