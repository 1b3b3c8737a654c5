# SPDX-License-Identifier: Apache-2.0
"""Frameworks for agents, as their users call them: calls and answers come back in the forms that they read."""

import pytest

CITIES = ("Zürich", "日本", "a b")
FORMS = ("chat", "responses", "messages")  # of LangChain's clients


@pytest.fixture(scope="module")
def agents(python_client):
    return python_client("clients", "agents_sdk.py")


@pytest.fixture(scope="module")
def langchain(python_client):
    return python_client("clients", "langchain_clients.py")


@pytest.fixture(scope="module")
def llama_index(python_client):
    return python_client("clients-llama-index", "llama_index_clients.py")


def is_weather(arguments):
    return arguments["city"] in CITIES and isinstance(arguments["days"], int)


def is_verdict(value):
    return isinstance(value["rain"], bool) and isinstance(value["places"], list)


@pytest.mark.parametrize("step", ["chat_loop", "chat_streamed", "responses_loop", "responses_streamed"])
def test_a_loop_of_the_agents_sdk_calls_its_tool_and_ends(agents, step):
    made = agents[step]
    assert made["items"] == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert len(made["calls"]) == 1 and is_weather(made["calls"][0]) and 0 <= made["calls"][0]["days"] <= 99
    assert made["answer"]


def test_the_agents_sdk_sees_the_events_of_a_stream(agents):
    for step in ("chat_streamed", "responses_streamed"):
        seen = agents[step]["events"]
        for kind in ("created", "function_call_arguments.delta", "output_text.delta", "output_item.done", "completed"):
            assert f"response.{kind}" in seen


def test_the_agents_sdk_gets_an_answer_of_its_type(agents):
    assert is_verdict(agents["chat_typed"]) and is_verdict(agents["responses_typed"])


def test_the_agents_sdk_continues_a_conversation_that_the_server_keeps(agents):
    made = agents["responses_continued"]
    assert made["calls"] == 2 and all(made["answers"])


@pytest.mark.parametrize("form", FORMS)
def test_langchain_gets_answers_whole_and_in_pieces(langchain, form):
    made = langchain[f"{form}_talk"]
    assert made["whole"] and made["joined"] and made["chunks"] > 1
    assert made["usage"]["input_tokens"] + made["usage"]["output_tokens"] == made["usage"]["total_tokens"]


@pytest.mark.parametrize("form", FORMS)
def test_langchain_gets_the_calls_that_it_demands_and_sends_results(langchain, form):
    for step in ("any", "named"):
        made = langchain[f"{form}_call_{step}"]
        assert made["calls"] and not made["invalid"] and made["answer"] and not made["further"]
        for name, arguments in made["calls"]:
            assert is_weather(arguments) if name == "weather" else name == "clock"
        assert step == "any" or [name for name, _ in made["calls"]] == ["weather"]


@pytest.mark.parametrize("form", FORMS)
def test_langchain_gets_structured_output_by_a_schema_and_by_a_call(langchain, form):
    for made in langchain[f"{form}_structured"]:
        assert is_verdict(made) and isinstance(made["why"], str)


def test_langchain_gets_embeddings(langchain):
    made = langchain["embeddings"]
    first, other, same = made["many"]
    assert first == pytest.approx(same, abs=1e-5) and made["one"] == pytest.approx(same, abs=1e-5) and first != other


def test_llama_index_gets_answers_whole_and_in_pieces(llama_index):
    made = llama_index["stream_chat"]
    assert llama_index["chat"] and made["joined"] and made["joined"] == made["last"]
    assert llama_index["complete"]


def test_llama_index_gets_the_calls_that_it_demands_and_sends_results(llama_index):
    made = llama_index["call"]
    assert made["answer"]
    for calls in (made["calls"], llama_index["stream_call"], llama_index["predict_and_call"]["sources"]):
        [[name, arguments]] = calls
        assert name == "weather" and is_weather(arguments)
    assert llama_index["predict_and_call"]["text"].startswith("It rains in ")


def test_llama_index_gets_structured_output(llama_index):
    assert is_verdict(llama_index["structured_by_a_call"]) and is_verdict(llama_index["structured_by_a_schema"])


def test_the_frameworks_ask_nobody_else(agents, langchain, llama_index):
    assert agents["elsewhere"] == langchain["elsewhere"] == llama_index["elsewhere"] == []
