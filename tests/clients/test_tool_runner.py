# SPDX-License-Identifier: Apache-2.0
"""The runner of tools of Anthropic's package for Python."""

from typing import Literal

import anthropic
import pytest


@pytest.mark.parametrize("streams", [False, True])
def test_the_runner_calls_tools_and_sends_their_results(server, streams):
    calls = []

    @anthropic.beta_tool
    def weather(city: Literal["Zürich", "日本"], days: int) -> str:
        """Tells the weather.

        Args:
            city: Where.
            days: How many days from now.
        """
        calls.append((city, days))
        return "It rains."

    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)
    runner = client.beta.messages.tool_runner(
        model=server.folder.name,
        max_tokens=600,
        messages=[{"role": "user", "content": "Will it rain?"}],
        tools=[weather],
        tool_choice={"type": "tool", "name": "weather"},
        max_iterations=2,
        stream=streams,
    )
    turns = [turn.get_final_message() if streams else turn for turn in runner]
    assert [turn.stop_reason for turn in turns] == ["tool_use"] * 2 and calls
    assert all(city in ("Zürich", "日本") and isinstance(days, int) for city, days in calls)
    # the second turn has the first, whoever keeps it
    first, second = (turn.usage.input_tokens + turn.usage.cache_read_input_tokens for turn in turns)
    assert second > first
