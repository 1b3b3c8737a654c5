# SPDX-License-Identifier: Apache-2.0
"""LlamaIndex's client of servers with OpenAI's routes."""

from typing import Annotated, Literal

import steps
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field

MESSAGES = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Will it rain?")]


def weather(city: Literal["Zürich", "日本", "a b"], days: Annotated[int, Field(ge=0, le=99)], note: str) -> str:
    """Tells the weather."""
    return f"It rains in {city}."


class Verdict(BaseModel):
    """Whether it rains."""

    rain: bool
    places: list[Literal["Zürich", "日本"]]


def client(url, model, **more):
    return OpenAILike(
        api_base=url + "/v1",
        api_key="none",
        model=model,
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=8192,
        max_tokens=600,
        max_retries=0,
        **more,
    )


def chat(url, model):
    return client(url, model, temperature=1.0).chat(MESSAGES).message.content


def stream_chat(url, model):
    chunks = list(client(url, model, temperature=1.0).stream_chat(MESSAGES))
    return {"joined": "".join(chunk.delta or "" for chunk in chunks), "last": chunks[-1].message.content}


def complete(url, model):
    return (
        OpenAILike(api_base=url + "/v1", api_key="none", model=model, is_chat_model=False, max_tokens=20, max_retries=0)
        .complete("the cat")
        .text
    )


def call(url, model):
    llm = client(url, model, temperature=1.0)
    tool = FunctionTool.from_defaults(fn=weather)
    response = llm.chat_with_tools([tool], chat_history=list(MESSAGES), tool_required=True)
    calls = llm.get_tool_calls_from_response(response)
    results = [
        ChatMessage(
            role="tool",
            content=str(tool.call(**one.tool_kwargs)),
            additional_kwargs={"tool_call_id": one.tool_id, "name": one.tool_name},
        )
        for one in calls
    ]
    answer = llm.chat([*MESSAGES, response.message, *results])
    return {"calls": [[one.tool_name, one.tool_kwargs] for one in calls], "answer": answer.message.content}


def stream_call(url, model):
    llm = client(url, model, temperature=1.0)
    tool = FunctionTool.from_defaults(fn=weather)
    chunks = list(llm.stream_chat_with_tools([tool], chat_history=list(MESSAGES), tool_required=True))
    calls = llm.get_tool_calls_from_response(chunks[-1])
    return [[one.tool_name, one.tool_kwargs] for one in calls]


def predict_and_call(url, model):
    tool = FunctionTool.from_defaults(fn=weather)
    response = client(url, model).predict_and_call([tool], user_msg="Will it rain?", tool_required=True)
    return {"text": str(response), "sources": [[one.tool_name, one.raw_input["kwargs"]] for one in response.sources]}


def structured_by_a_call(url, model):
    return client(url, model).as_structured_llm(Verdict).chat(MESSAGES).raw.model_dump()


def structured_by_a_schema(url, model):
    return (
        client(url, model, should_use_structured_outputs=True)
        .as_structured_llm(Verdict)
        .chat(MESSAGES)
        .raw.model_dump()
    )


steps.run(
    chat,
    stream_chat,
    complete,
    call,
    stream_call,
    predict_and_call,
    structured_by_a_call,
    structured_by_a_schema,
)
