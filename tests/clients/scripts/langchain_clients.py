# SPDX-License-Identifier: Apache-2.0
"""LangChain's chat models of OpenAI and Anthropic, and its embeddings."""

from typing import Annotated, Literal

import steps
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

MESSAGES = [SystemMessage("Be brief."), HumanMessage("Will it rain?")]


@tool
def weather(city: Literal["Zürich", "日本", "a b"], days: Annotated[int, Field(ge=0, le=99)], note: str = "") -> str:
    """Tells the weather."""
    return f"It rains in {city}."


@tool
def clock() -> str:
    """Tells the time."""
    return "noon"


class Verdict(BaseModel):
    """Whether it rains."""

    rain: bool
    why: str
    places: list[Literal["Zürich", "日本"]]


def openai_chat(url, model, **more):
    return ChatOpenAI(base_url=url + "/v1", api_key="none", model=model, max_retries=0, max_tokens=600, **more)


def anthropic_chat(url, model, **more):
    return ChatAnthropic(base_url=url, api_key="none", model=model, max_retries=0, max_tokens=600, **more)


def talk(chat):
    whole = chat.invoke(MESSAGES)
    chunks = list(chat.stream(MESSAGES))
    joined = chunks[0]
    for chunk in chunks[1:]:
        joined += chunk
    return {"whole": whole.text, "usage": whole.usage_metadata, "joined": joined.text, "chunks": len(chunks)}


def call(chat, demand, streams, none="none"):
    """A demanded call, its result, and the answer to it."""
    bound = chat.bind_tools([weather, clock], tool_choice=demand)
    if streams:
        chunks = list(bound.stream(MESSAGES))
        message = chunks[0]
        for chunk in chunks[1:]:
            message += chunk
    else:
        message = bound.invoke(MESSAGES)
    tools = {"weather": weather, "clock": clock}
    results = [
        ToolMessage(tools[one["name"]].invoke(one["args"]), tool_call_id=one["id"]) for one in message.tool_calls
    ]
    answer = chat.bind_tools([weather, clock], tool_choice=none).invoke([*MESSAGES, message, *results])
    return {
        "calls": [[one["name"], one["args"]] for one in message.tool_calls],
        "invalid": message.invalid_tool_calls,
        "answer": answer.text,
        "further": answer.tool_calls,
    }


def structured(chat, **more):
    return chat.with_structured_output(Verdict, **more).invoke(MESSAGES).model_dump()


def chat_talk(url, model):
    return talk(openai_chat(url, model, stream_usage=True))


def chat_call_any(url, model):
    return call(openai_chat(url, model), "any", False)


def chat_call_named(url, model):
    return call(openai_chat(url, model), "weather", True)


def chat_structured(url, model):
    chat = openai_chat(url, model)
    return [structured(chat, method=method) for method in ("json_schema", "function_calling")]


def responses_talk(url, model):
    return talk(openai_chat(url, model, use_responses_api=True))


def responses_call_any(url, model):
    return call(openai_chat(url, model, use_responses_api=True), "any", True)


def responses_call_named(url, model):
    return call(openai_chat(url, model, use_responses_api=True), "weather", False)


def responses_structured(url, model):
    chat = openai_chat(url, model, use_responses_api=True)
    return [structured(chat, method=method) for method in ("json_schema", "function_calling")]


def messages_talk(url, model):
    return talk(anthropic_chat(url, model))


def messages_call_any(url, model):
    return call(anthropic_chat(url, model), "any", True, none={"type": "none"})


def messages_call_named(url, model):
    return call(anthropic_chat(url, model), "weather", False, none={"type": "none"})


def messages_structured(url, model):
    chat = anthropic_chat(url, model)
    return [structured(chat, method=method) for method in ("json_schema", "function_calling")]


def embeddings(url, model):
    # LangChain would count tokens by a vocabulary of OpenAI's that it downloads
    client = OpenAIEmbeddings(
        base_url=url + "/v1", api_key="none", model=model, check_embedding_ctx_length=False, max_retries=0
    )
    many = client.embed_documents(["the cat", "a dog", "the cat"])
    return {"many": many, "one": client.embed_query("the cat")}


steps.run(
    chat_talk,
    chat_call_any,
    chat_call_named,
    chat_structured,
    responses_talk,
    responses_call_any,
    responses_call_named,
    responses_structured,
    messages_talk,
    messages_call_any,
    messages_call_named,
    messages_structured,
    embeddings,
)
