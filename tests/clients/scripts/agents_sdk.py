# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Agents SDK: a loop that has to call a tool and then answers, over both of OpenAI's routes."""

from typing import Annotated, Literal

import steps
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

set_tracing_disabled(True)


class Place(BaseModel):
    city: Literal["Zürich", "日本", "a b"]
    country: str | None


class Verdict(BaseModel):
    rain: bool
    places: list[Place]


def agent(form, url, model, calls=None, **more):
    @function_tool
    def weather(place: Place, days: Annotated[int, Field(ge=0, le=99)], note: str) -> str:
        """Tells the weather.

        Args:
            place: Where.
            days: How many days from now.
            note: Anything else.
        """
        calls.append({"city": place.city, "days": days, "note": note})
        return "It rains."

    client = AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    if calls is not None:
        more["tools"] = [weather]
    settings = ModelSettings(max_tokens=600, tool_choice="required" if calls is not None else None)
    return Agent(name="a", instructions="Be brief.", model=form(model, client), model_settings=settings, **more)


async def loop(form, url, model):
    calls = []
    result = await Runner.run(agent(form, url, model, calls), "Will it rain?", max_turns=4)
    return {"calls": calls, "items": [item.type for item in result.new_items], "answer": result.final_output}


async def streamed(form, url, model):
    calls, raw = [], []
    result = Runner.run_streamed(agent(form, url, model, calls), "Will it rain?", max_turns=4)
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            raw.append(event.data.type)
    kinds = [item.type for item in result.new_items]
    return {"calls": calls, "items": kinds, "answer": result.final_output, "events": sorted(set(raw))}


async def typed(form, url, model):
    result = await Runner.run(agent(form, url, model, output_type=Verdict), "Will it rain?", max_turns=2)
    return result.final_output.model_dump()


def chat_loop(url, model):
    return loop(OpenAIChatCompletionsModel, url, model)


def chat_streamed(url, model):
    return streamed(OpenAIChatCompletionsModel, url, model)


def chat_typed(url, model):
    return typed(OpenAIChatCompletionsModel, url, model)


def responses_loop(url, model):
    return loop(OpenAIResponsesModel, url, model)


def responses_streamed(url, model):
    return streamed(OpenAIResponsesModel, url, model)


def responses_typed(url, model):
    return typed(OpenAIResponsesModel, url, model)


async def responses_continued(url, model):
    """The server keeps the conversation: only what is new is sent."""
    calls = []
    one = agent(OpenAIResponsesModel, url, model, calls)
    first = await Runner.run(one, "Will it rain?", max_turns=4, auto_previous_response_id=True)
    second = await Runner.run(one, "And then?", max_turns=4, previous_response_id=first.last_response_id)
    return {"calls": len(calls), "answers": [first.final_output, second.final_output]}


steps.run(
    chat_loop,
    chat_streamed,
    chat_typed,
    responses_loop,
    responses_streamed,
    responses_typed,
    responses_continued,
)
