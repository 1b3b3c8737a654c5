# SPDX-License-Identifier: Apache-2.0
"""Requests in the shape of those that coding clients send to /v1/responses and to /v1/messages. Streams are read as the
clients read them; a demanded call fits its schema; the turn with its result is accepted and answered.
"""

import json
import re

import jsonschema_rs
import pytest
import requests

STRING, NUMBER, BOOLEAN = {"type": "string"}, {"type": "number"}, {"type": "boolean"}


def described(kind, text):
    return {**kind, "description": text}


def strict_object(required, **properties):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def events(reply):
    """The events of a stream as (name, data). Every event has a name, and its data repeat it as type."""
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    name, made = None, []
    for line in reply.content.splitlines():
        field, _, value = line.decode().partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data = json.loads(value)
            assert data["type"] == name
            made.append((name, data))
        else:
            assert not line or line.startswith(b":"), line
    return made


# --- /v1/responses -------------------------------------------------------------------------------------------------

PLAN_STEP = strict_object(
    ["step", "status"], step=STRING, status={"type": "string", "enum": ["pending", "in_progress", "completed"]}
)
FUNCTIONS = {
    "shell": (
        "Runs a command and returns its output.",
        strict_object(
            ["command"],
            command={"type": "array", "items": STRING, "description": "The command"},
            workdir=described(STRING, "Where it runs"),
            timeout_ms=described(NUMBER, "Milliseconds"),
            with_escalated_permissions=BOOLEAN,
            justification=described(STRING, "Why, in one sentence"),
        ),
    ),
    "update_plan": (
        "Shows the plan.",
        strict_object(["plan"], explanation=STRING, plan={"type": "array", "items": PLAN_STEP, "minItems": 1}),
    ),
    "view_image": ("Attaches a picture.", strict_object(["path"], path=STRING)),
    "files__search": (
        "A tool of another server, with the schema that it gave.",
        {"type": "object", "properties": {"query": STRING, "limit": {"type": "integer"}}, "required": ["query"]},
    ),
}


def input_message(role, *texts):
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


OPENING = [
    input_message("developer", "<permissions>Commands run in a sandbox. The network is off.</permissions>"),
    input_message(
        "user", "# Instructions of the project\n\nKeep lines short.", "<environment><cwd>/w</cwd></environment>"
    ),
    input_message("user", "List the files."),
]


def respond(server, items, **more):
    body = {
        "model": server.folder.name,
        "instructions": "You are a coding agent. Work until the task is done.",
        "input": items,
        "tools": [
            {"type": "function", "name": name, "description": text, "strict": False, "parameters": schema}
            for name, (text, schema) in FUNCTIONS.items()
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199c6c8-0000-7000-8000-000000000001",
        "text": {"verbosity": "low"},
        "client_metadata": {"installation": "1"},
        **more,
    }
    headers = {
        "Authorization": "Bearer none",
        "Accept": "text/event-stream",
        "OpenAI-Beta": "responses=experimental",
        "session_id": "0199c6c8-0000-7000-8000-000000000001",
        "originator": "coding_client",
    }
    return requests.post(server.url + "/v1/responses", json=body, headers=headers, timeout=60)


def read_response(reply):
    """The items of output_item.done, and the response at the end. The events before make the same items."""
    made = events(reply)
    assert [data["sequence_number"] for _, data in made] == list(range(len(made)))
    assert [name for name, _ in made[:2]] == ["response.created", "response.in_progress"]
    pieces, items = {}, []
    for name, data in made:
        if name in (
            "response.output_text.delta",
            "response.function_call_arguments.delta",
            "response.custom_tool_call_input.delta",
        ):
            pieces[data["item_id"]] = pieces.get(data["item_id"], "") + data["delta"]
        if name == "response.output_item.done":
            items.append(data["item"])
            item = data["item"]
            text = item.get("arguments") or item.get("input") or item["content"][0]["text"]
            assert pieces[data["item"]["id"]] == text
    name, last = made[-1]
    assert name == "response.completed" and last["response"]["id"]
    assert last["response"]["output"] == items
    assert last["response"]["usage"]["total_tokens"] > 0
    return items, last["response"]


@pytest.mark.parametrize("name", ["required", *FUNCTIONS])
def test_a_call_of_a_response_fits_its_schema_and_its_result_is_answered(server, name):
    choice = name if name == "required" else {"type": "function", "name": name}
    items, response = read_response(respond(server, OPENING, tool_choice=choice))
    [call] = [item for item in items if item["type"] == "function_call"]
    assert name in ("required", call["name"]) and response["store"] is False
    assert jsonschema_rs.is_valid(FUNCTIONS[call["name"]][1], json.loads(call["arguments"]))

    # clients send back what they keep of an item: no id, no status
    kept = {field: call[field] for field in ("type", "name", "arguments", "call_id")}
    reasoning = {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAA"}
    output = {"exit_code": 0, "output": "README.md\n"}
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": json.dumps(output)}
    turn = [*OPENING, reasoning, kept, result]
    items, response = read_response(respond(server, turn, tool_choice="none"))
    [message] = items
    assert message["type"] == "message" and message["role"] == "assistant" and message["content"][0]["text"]

    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    parts = [{"type": "input_text", "text": "README.md"}]
    turn = [*OPENING, kept, {**result, "output": parts}, said, input_message("user", "And now?")]
    assert read_response(respond(server, turn))[0]


PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files. This is a free-form tool: do not wrap the patch in JSON.",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: begin_patch hunk+ end_patch\nbegin_patch: "*** Begin Patch" LF\n%import common.LF\n',
    },
}


def test_a_patch_is_a_custom_tool_whose_input_is_text(server):
    items, _ = read_response(respond(server, OPENING, tools=[PATCH], tool_choice="none"))
    assert [item["type"] for item in items] == ["message"], "its grammar is no obstacle"
    expression = {"type": "grammar", "syntax": "regex", "definition": r"\*\*\* Begin Patch\n(\+[a-z]{1,8}\n){1,3}End"}
    tools = [{**PATCH, "format": expression}]
    choice = {"type": "custom", "name": "apply_patch"}
    items, response = read_response(respond(server, OPENING, tools=tools, tool_choice=choice))
    [call] = [item for item in items if item["type"] == "custom_tool_call"]
    assert call["name"] == "apply_patch" and response["tools"] == tools
    assert re.fullmatch(expression["definition"], call["input"]), call["input"]
    kept = {field: call[field] for field in ("type", "name", "input", "call_id")}
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Success."}
    items, _ = read_response(respond(server, [*OPENING, kept, result], tools=tools, tool_choice="none"))
    assert [item["type"] for item in items] == ["message"]
    refused = respond(server, OPENING, tools=[PATCH], tool_choice=choice)
    assert refused.status_code == 400 and "a Lark grammar" in refused.json()["error"]["message"]


# --- /v1/messages --------------------------------------------------------------------------------------------------

WHOLE = {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991}
OPTION = strict_object(["label", "description"], label=STRING, description=STRING)
QUESTION = strict_object(
    ["question", "header", "options", "multiSelect"],
    question=STRING,
    header=STRING,
    options={"type": "array", "items": OPTION, "minItems": 2, "maxItems": 4},
    multiSelect={"type": "boolean", "default": False},
)
TODO = strict_object(
    ["content", "status", "activeForm"],
    content={"type": "string", "minLength": 1},
    status={"type": "string", "enum": ["pending", "in_progress", "completed"]},
    activeForm={"type": "string", "minLength": 1},
)
TOOLS = {
    "Task": strict_object(
        ["description", "prompt"], description=STRING, prompt=STRING, model={"enum": ["big", "small"]}
    ),
    "Bash": strict_object(
        ["command"], command=STRING, timeout=NUMBER, description=STRING, run_in_background={"type": "boolean"}
    ),
    "Glob": strict_object(["pattern"], pattern=STRING, path=STRING),
    "Grep": strict_object(
        ["pattern"],
        **{"pattern": STRING, "path": STRING, "-B": NUMBER, "-A": NUMBER, "-n": BOOLEAN},
        output_mode={"type": "string", "enum": ["content", "files_with_matches", "count"]},
    ),
    "Read": strict_object(["file_path"], file_path=STRING, offset=WHOLE, limit=WHOLE),
    "Edit": strict_object(
        ["file_path", "old_string", "new_string"],
        file_path=STRING,
        old_string=STRING,
        new_string=STRING,
        replace_all={"type": "boolean", "default": False},
    ),
    "Write": strict_object(["file_path", "content"], file_path=STRING, content=STRING),
    "WebFetch": strict_object(["url", "prompt"], url={"type": "string", "format": "uri"}, prompt=STRING),
    "TodoWrite": strict_object(["todos"], todos={"type": "array", "items": TODO}),
    "AskUserQuestion": strict_object(
        ["questions"],
        questions={"type": "array", "items": QUESTION, "minItems": 1, "maxItems": 4},
        answers={"type": "object", "propertyNames": STRING, "additionalProperties": STRING},
    ),
    "ExitPlanMode": {"type": "object", "properties": {}, "additionalProperties": {}},
    "mcp__files__search": {"type": "object", "properties": {"query": STRING}, "required": ["query"]},
}
KEPT = {"cache_control": {"type": "ephemeral"}}


def text_block(text, **more):
    return {"type": "text", "text": text, **more}


MESSAGES = [
    {
        "role": "user",
        "content": [
            text_block("<system-reminder>\nKeep lines short.\n</system-reminder>"),
            text_block("List the files.", **KEPT),
        ],
    }
]


def message_body(server, turns, **more):
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {
        "model": server.folder.name,
        "system": [
            text_block("You are a coding agent.", **KEPT),
            text_block(
                "Work until the task is done.\n\n# Environment\ncwd: /w",
                cache_control={"type": "ephemeral", "ttl": "1h"},
            ),
        ],
        "messages": turns,
        "tools": [
            {"name": name, "description": f"{name} of the client.", "input_schema": {"$schema": dialect, **schema}}
            for name, schema in TOOLS.items()
        ],
        **more,
    }


def send(server, path, body):
    headers = {
        "x-api-key": "none",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14",
        "x-app": "cli",
    }
    return requests.post(server.url + path + "?beta=true", json=body, headers=headers, timeout=60)


def send_turns(server, turns, **more):
    body = message_body(
        server,
        turns,
        max_tokens=32000,
        temperature=1,
        stream=True,
        metadata={"user_id": "user_0_account__session_0"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        **more,
    )
    return send(server, "/v1/messages", body)


def read_message(reply):
    """The blocks that the events make, the reason of the end and the usage."""
    blocks, pieces, stop, usage = [], [], None, {}
    made = [event for event in events(reply) if event[0] != "ping"]
    assert made[0][0] == "message_start" and made[-1][0] == "message_stop"
    usage.update(made[0][1]["message"]["usage"])
    for name, data in made[1:-1]:
        if name == "content_block_start":
            assert data["index"] == len(blocks)
            blocks.append(dict(data["content_block"]))
            pieces.append("")
        elif name == "content_block_delta":
            delta = data["delta"]
            pieces[data["index"]] += delta.get("text", "") + delta.get("partial_json", "")
        elif name == "message_delta":
            stop = data["delta"]["stop_reason"]
            usage.update(data["usage"])
        else:
            assert name == "content_block_stop", name
    for block, text in zip(blocks, pieces, strict=True):
        if block["type"] == "tool_use":
            block["input"] = json.loads(text or "{}")
        else:
            block["text"] += text
    return blocks, stop, usage


@pytest.mark.parametrize("name", ["any", *TOOLS])
def test_a_call_of_a_message_fits_its_schema_and_its_result_is_answered(server, name):
    choice = {"type": "any"} if name == "any" else {"type": "tool", "name": name}
    blocks, stop, usage = read_message(send_turns(server, MESSAGES, tool_choice=choice))
    assert stop == "tool_use" and usage["output_tokens"] > 0
    calls = [block for block in blocks if block["type"] == "tool_use"]
    assert calls and all(name in ("any", call["name"]) for call in calls)
    for call in calls:
        assert jsonschema_rs.is_valid(TOOLS[call["name"]], call["input"]), call

    thought = {"type": "thinking", "thinking": "I look.", "signature": ""}
    results = [
        {
            "type": "tool_result",
            "tool_use_id": call["id"],
            "content": [text_block("README.md")],
            "is_error": False,
            **KEPT,
        }
        for call in calls
    ]
    reminder = text_block("<system-reminder>The list of tasks is empty.</system-reminder>")
    turns = [
        *MESSAGES,
        {"role": "assistant", "content": [thought, *blocks]},
        {"role": "user", "content": [*results, reminder]},
    ]
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 31999}}
    blocks, stop, usage = read_message(send_turns(server, turns, tool_choice={"type": "none"}, **thinking))
    assert [block["type"] for block in blocks] == ["text"] and blocks[0]["text"] and stop == "end_turn"

    counted = send(
        server, "/v1/messages/count_tokens", message_body(server, turns, tool_choice={"type": "none"}, **thinking)
    )
    assert counted.json() == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
    assert read_message(send_turns(server, turns, **thinking, output_config={"effort": "low"}))[0]


def test_a_failed_call_of_a_tool_is_answered(server):
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/w/a"}}
    failed = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "No such file", "is_error": True}
    turns = [*MESSAGES, {"role": "assistant", "content": [call]}, {"role": "user", "content": [failed]}]
    assert read_message(send_turns(server, turns, thinking={"type": "adaptive"}))[0]


def test_a_client_that_looks_for_its_quota_gets_one_token(server):
    """The first request of a session: one token, no tools, no stream."""
    body = {"model": server.folder.name, "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
    reply = send(server, "/v1/messages", {**body, "metadata": {"user_id": "u"}}).json()
    assert reply["usage"]["output_tokens"] == 1 and reply["stop_reason"] == "max_tokens"


def test_the_older_name_of_an_answers_format_is_held(server):
    schema = strict_object(["yes"], yes=BOOLEAN)
    body = {"model": server.folder.name, "max_tokens": 200, "messages": MESSAGES}
    reply = send(server, "/v1/messages", {**body, "output_format": {"type": "json_schema", "schema": schema}})
    assert reply.status_code == 200, reply.text
    assert jsonschema_rs.is_valid(schema, json.loads(reply.json()["content"][0]["text"]))
