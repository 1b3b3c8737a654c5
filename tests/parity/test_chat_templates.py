# SPDX-License-Identifier: Apache-2.0
"""Conversations rendered with a chat template equal those of transformers' apply_chat_template. The templates have
the shapes of well-known models (Llama 3, ChatML, Mistral, Gemma, tool use, reasoning) and use the same features of
Jinja.
"""

import json
import subprocess

import pytest
import tokenizers
import transformers

import worker

LLAMA3 = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' \
+ message['role'] + '<|end_header_id|>

'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif \
%}{{ content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>

' }}{% endif %}"""

# dates, tools in the system or the user's turn, calls and their results
LLAMA31 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + \
'<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + \
'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

# default system text, tools as JSON lines, results of tools joined in one turn by looking at the neighbours
QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are helpful.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" \
and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# a namespace, a loop from the end, methods of Python's strings
REASONING = """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and \
not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = \
content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' \
+ content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and \
message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate \
user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional \
system message!") }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% \
endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ \
raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if \
(message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ \
'<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if \
add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

# a system text folded into the first turn; content as text or as parts
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = \
messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for \
message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ \
raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 \
== 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + \
message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ \
bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + \
content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

# macros, filters, recursion over a schema, loop controls, the marks of training data
MACROS = """{%- macro param_type(spec) -%}
    {%- if spec.type == "array" -%}{{ param_type(spec['items']) + "[]" }}
    {%- elif spec.enum is defined -%}{{ spec.enum | map("tojson") | join(" | ") }}
    {%- elif spec.type == "object" -%}Record<{% for k, v in spec.properties.items() %}{{ k }}: {{ param_type(v) }}{% \
if not loop.last %}, {% endif %}{% endfor %}>
    {%- else -%}{{ spec.type | default("any", true) | upper }}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] %}
namespace {{ tool.function.name | replace("get_", "") | capitalize }}({% for name, spec in \
tool.function.parameters.properties | dictsort %}{{ name ~ ": " ~ param_type(spec) }}{{ ", " if not loop.last }}{% \
endfor %})
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "developer" %}{% continue %}{% endif %}
    {%- if message.role == "stop" %}{% break %}{% endif %}
    {%- if message.role == "assistant" %}
{% generation %}{{ message.content.title() }}{% endgeneration %}
    {%- else %}
[{{ loop.index }}/{{ loop.length }}] {{ message.role | title }}: {{ message.content.replace("a", "4", 1).upper() if \
loop.first else message.content | indent(2) }}
    {%- endif %}
{%- endfor %}
{{ messages | map(attribute="role") | unique | join(",") }} {{ messages | rejectattr("role", "equalto", "user") | list \
| length }} {{ messages[-1] }} {{ [1.0, 2, true, none, "it's"] }} {{ (messages | first).content[:3] }} {{ "%s-%d" | \
format("n", 3) }} {{ dict(a=1)["a"] }} {{ 7 // 2 }} {{ 2 ** 5 }} {{ -7 % 3 }} {{ 1 / 2 }} {{ "x" * 3 }} {{ "a" in \
"abc" }} {{ undefined_thing }}"""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'The weather of a place, "now" – in °C',
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string"},
                    "unit": {"type": "string", "enum": ["c", "f"]},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "zeta", "parameters": {"type": "object", "properties": {}}}},
]
SYSTEM, USER, USER2 = (
    {"role": "system", "content": "Be <brief> & kind.\n"},
    {"role": "user", "content": '  What\'s "new"?\nÄ 日本 😀  '},
    {"role": "user", "content": "And then?"},
)
ASSISTANT = {"role": "assistant", "content": " Nothing much.\n\n"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "abcdef123",
            "type": "function",
            "function": {"name": "get_weather", "arguments": {"place": "Bär", "days": [1, 2]}},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": '{"t": 21.5}'}
THOUGHT = {"role": "assistant", "reasoning_content": "\nhm\n", "content": "Yes."}
TAGGED = {"role": "assistant", "content": "<think>\nso\n</think>\n\nNo."}
PARTS = {"role": "user", "content": [{"type": "text", "text": " first "}, {"type": "text", "text": "second"}]}

CONVERSATIONS = [
    dict(messages=messages, **more)
    for messages in (
        [USER],
        [SYSTEM, USER],
        [USER, ASSISTANT, USER2],
        [SYSTEM, USER, ASSISTANT, USER2],
        [USER, THOUGHT, USER2, THOUGHT],
        [USER, TAGGED, USER2],
        [PARTS, ASSISTANT, USER2],
        [{"role": "developer", "content": "d"}, USER, {"role": "stop", "content": ""}],
    )
    for more in ({"add_generation_prompt": True}, {})
]
CONVERSATIONS += [
    dict(messages=messages, tools=TOOLS, add_generation_prompt=True)
    for messages in ([USER], [SYSTEM, USER], [USER, CALL, RESULT], [USER, CALL, RESULT, RESULT, ASSISTANT, USER2])
]
CONVERSATIONS += [
    dict(messages=[USER, ASSISTANT], continue_final_message=True),
    dict(messages=[USER, {"role": "assistant", "content": "It is"}], continue_final_message=True),
    dict(messages=[USER], add_generation_prompt=True, kwargs={"enable_thinking": False, "date_string": "1 Jan 2000"}),
]

TEMPLATES = {
    "llama3": LLAMA3,
    "llama31": LLAMA31,
    "chatml": CHATML,
    "qwen": QWEN,
    "reasoning": REASONING,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "gemma3": GEMMA3,
    "llama2": LLAMA2,
    "zephyr": ZEPHYR,
    "macros": MACROS,
}


def tokenizer(template):
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2}, unk_token="<unk>"))
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    made.chat_template = template
    return made


def theirs(oracle, conversation):
    """The text, or None where transformers refuses, and with which words."""
    import jinja2

    more = conversation.get("kwargs", {})
    try:
        return oracle.apply_chat_template(
            conversation["messages"],
            tools=conversation.get("tools"),
            tokenize=False,
            add_generation_prompt=conversation.get("add_generation_prompt", False),
            continue_final_message=conversation.get("continue_final_message", False),
            **more,
        ), ""
    except (jinja2.exceptions.TemplateError, TypeError, ValueError) as error:
        return None, str(error)


def ours(folder, conversations):
    import time

    asked = folder / "asked.json"
    asked.write_text(json.dumps([{"now": int(time.time()), **c} for c in conversations]))
    done = subprocess.run([worker.TOOLS / "chat_dump", folder, asked], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", TEMPLATES)
def test_conversations_are_rendered_as_transformers_renders_them(tmp_path, name):
    oracle = tokenizer(TEMPLATES[name])
    oracle.save_pretrained(tmp_path)
    texts = 0
    for conversation, answer in zip(CONVERSATIONS, ours(tmp_path, CONVERSATIONS), strict=True):
        wanted, words = theirs(oracle, conversation)
        if wanted is None:
            assert "refused" in answer, (conversation, answer, words)
            if "must alternate" in words or "supported" in words or "single tool" in words:  # raise_exception's
                assert answer["refused"].endswith(words)
        else:
            assert answer.get("text") == wanted, conversation
            texts += 1
    assert texts >= 8, "most conversations render, else equality proves little"


def test_a_template_of_the_config_and_one_of_a_file_are_the_same(tmp_path):
    oracle = tokenizer(QWEN)
    oracle.save_pretrained(tmp_path / "file")
    oracle.save_pretrained(tmp_path / "config", save_jinja_files=False)
    assert (tmp_path / "file/chat_template.jinja").exists() and "chat_template" in json.loads(
        (tmp_path / "config/tokenizer_config.json").read_text()
    )
    answers = [ours(tmp_path / place, CONVERSATIONS) for place in ("file", "config")]
    assert answers[0] == answers[1]


def test_named_templates_are_chosen_as_transformers_chooses(tmp_path):
    oracle = tokenizer({"default": CHATML, "tool_use": QWEN})
    for place, files in (("file", True), ("config", False)):
        oracle.save_pretrained(tmp_path / place, save_jinja_files=files)
        for conversation, answer in zip(CONVERSATIONS, ours(tmp_path / place, CONVERSATIONS), strict=True):
            wanted, _ = theirs(oracle, conversation)
            assert answer.get("text") == wanted, conversation


def test_a_folder_without_a_template_has_none(tmp_path):
    tokenizer(None).save_pretrained(tmp_path)
    assert ours(tmp_path, CONVERSATIONS[:1]) is None
