# SPDX-License-Identifier: Apache-2.0
"""The official packages for Node, with their helpers for streams, tools and schemas."""

import json

import pytest

CITIES = ("Zürich", "日本", "a b")


@pytest.fixture(scope="module")
def openai(node_client):
    return node_client("openai_package.mjs")


@pytest.fixture(scope="module")
def anthropic(node_client):
    return node_client("anthropic_package.mjs")


def check_weather(name, arguments):
    assert name == "weather" and arguments["city"] in CITIES
    assert isinstance(arguments["days"], int) and 0 <= arguments["days"] <= 99
    assert set(arguments) == {"city", "days", "note"}


def check_verdict(value):
    assert isinstance(value["rain"], bool) and set(value["places"]) <= set(CITIES)


def test_chat_completions_come_whole_and_in_pieces(openai, server):
    assert openai["chat_plain"]["text"] and openai["chat_plain"]["models"] == [server.folder.name]
    iterated, stream = openai["chat_iterated"], openai["chat_stream"]
    assert iterated["text"] and iterated["finish"] == "stop"
    assert iterated["usage"]["prompt_tokens"] == openai["chat_plain"]["usage"]["prompt_tokens"]
    assert stream["deltas"] and stream["deltas"] == stream["text"] and stream["finish"] == "stop"


def test_the_helper_for_streams_parses_a_call(openai):
    made = openai["chat_stream_of_a_call"]
    assert made["finish"] == "tool_calls" and made["calls"] and made["done"] == made["calls"]
    for name, arguments in made["calls"]:
        check_weather(name, arguments)


def test_run_tools_calls_functions_and_sends_their_results(openai):
    made = openai["chat_run_tools"]
    [arguments] = made["calls"]
    check_weather("weather", arguments)
    assert json.loads(made["result"]) == {"rain": True}
    assert made["roles"] == ["developer", "user", "assistant", "tool"]
    made = openai["chat_run_tools_streamed"]
    assert len(made["calls"]) == 2 and made["roles"] == ["developer", "user", *["assistant", "tool"] * 2]
    for arguments in made["calls"]:
        check_weather("weather", arguments)


def test_parsed_answers_follow_their_schemas(openai, anthropic):
    check_verdict(openai["chat_parsed"])
    check_verdict(openai["responses_parsed"])
    check_verdict(anthropic["parsed"])


def test_completions_and_embeddings(openai):
    assert openai["completions_iterated"]
    assert openai["embeddings"] == [32, 32]


def test_a_response_is_streamed(openai):
    made = openai["responses_stream"]
    assert made["status"] == "completed" and made["deltas"] and made["deltas"] == made["text"]
    assert made["usage"]["total_tokens"] == made["usage"]["input_tokens"] + made["usage"]["output_tokens"]


def test_a_response_calls_a_function_and_its_result_is_answered(openai):
    made = openai["responses_call"]
    for name, arguments in made["calls"]:
        check_weather(name, arguments)
    assert made["deltas"] == made["arguments"] and made["answer"]


def test_messages_come_whole_and_in_pieces(anthropic):
    made, stream = anthropic["plain"], anthropic["stream"]
    assert made["text"] and made["stop"] == "end_turn"
    usage = made["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == made["input_tokens"]
    assert stream["deltas"] and stream["deltas"] == stream["text"] and stream["stop"] == "end_turn"
    kinds = anthropic["iterated"]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop" and "content_block_delta" in kinds


def test_a_message_calls_a_tool_and_its_result_is_answered(anthropic):
    made = anthropic["stream_of_a_call"]
    assert made["stop"] == "tool_use" and made["answer"]
    for name, arguments in made["calls"]:
        check_weather(name, arguments)
    assert json.loads(made["json"]) == made["calls"][0][1]


def test_the_runner_of_tools_calls_them_and_sends_their_results(anthropic):
    made = anthropic["tool_runner"]
    [(first, tokens), (second, more_tokens)] = made["turns"]
    assert first == second == "tool_use" and made["calls"]
    assert more_tokens > tokens  # the second turn has the first, whoever keeps it
    for arguments in made["calls"]:
        check_weather("weather", arguments)


def test_errors_have_the_classes_of_the_packages(openai, anthropic):
    made = openai["refused"]
    assert (made["name"], made["status"], made["code"]) == ("NotFoundError", 404, "model_not_found") and made["id"]
    made = anthropic["refused"]
    assert (made["name"], made["status"], made["type"]) == ("NotFoundError", 404, "not_found_error") and made["id"]


def test_the_packages_ask_nobody_else(openai, anthropic):
    assert openai["elsewhere"] == anthropic["elsewhere"] == []
