# SPDX-License-Identifier: Apache-2.0
"""Replies parsed into content, reasoning and tool calls: with response templates they equal transformers' chat parsing,
the forms of families give what their models mean, and no cut of the text changes a message.
"""

import json
import subprocess

import pytest
from transformers.cli.serving import utils
from transformers.utils.chat_parsing import ResponseParser

import worker

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "ratio": {"type": ["number", "null"]},
                    "metric": {"type": "boolean"},
                    "where": {"type": "object"},
                    "tags": {"anyOf": [{"type": "array"}, {"type": "null"}]},
                },
            },
        },
    }
]
NESTED = {"city": 'Zürich "日本" \\ </tool>', "where": {"a": [1, {"b": None}], "c": "}]"}, "days": 3}
CALL = json.dumps({"name": "weather", "arguments": NESTED}, ensure_ascii=False)
OTHER = '{"name": "time", "arguments": {}}'
CHATML = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
FALLBACKS = {types[0]: template for types, template in utils._RESPONSE_TEMPLATE_FALLBACKS.items()}
GPT_OSS = {
    "start_anchor": "<|start|>assistant",
    "fields": {
        "reasoning_content": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
        "content": {"open": "<|channel|>final<|message|>", "close": ["<|end|>", "<|return|>"]},
        "tool_calls": {
            "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>\w+).*?<\|message\|>",
            "close": "<|call|>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
COMMAND = {
    "start_anchor": "<|CHATBOT_TOKEN|>",
    "fields": {
        "thinking": {"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
        "content": {"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"},
        "tool_calls": {
            "open": "<|START_ACTION|>",
            "close": "<|END_ACTION|>",
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{tool_name}", "arguments": "{parameters}"}},
            "transform_each": True,
        },
    },
}
LINES = {
    "start_anchor_pattern": r"<bot(?:-\d+)?>",
    "fields": {
        "content": {"close_pattern": r"\Z"},
        "reasoning": {"open": ["[T]", "[THINK]"], "close_pattern": r"\[/T(?:HINK)?\]", "repeats": True, "join": " & "},
        "tool_calls": {
            "open_pattern": r"!(?P<name>[a-z]+)\n",
            "close": "\n!",
            "repeats": True,
            "content": "kv-lines",
            "content_args": {"kv_sep": "=", "value_parser": {"name": "json", "args": {"allow_non_json": True}}},
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
XML_CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n日本\n</parameter>\n"
    "<parameter=days>\n 3.0\n</parameter>\n"
    '<parameter=where>\n{"a": [1]}\n</parameter>\n<parameter=tags>null</parameter><parameter=metric>True</parameter>\n'
    "<parameter=ratio>1e3</parameter>\n</function>\n</tool_call>"
)
GEMMA = '<|tool_call>call:weather{city:<|"|>Zür "ich"<|"|>,where:{a:1},days:<|"|>12<|"|>}<tool_call|>'
TEMPLATES = {
    "plain": (FALLBACKS["qwen2"], CHATML, "  Hello, wörld.\n "),
    "empty": (FALLBACKS["qwen2"], CHATML, ""),
    "reasoning": (FALLBACKS["qwen2"], CHATML, "<think>\nHm <b> </think\n</think>\n\nHello"),
    "prefilled": (FALLBACKS["qwen3_5"], CHATML + "<think>\n", "Hm\n\n</think>\n\nHello <think"),
    "closed": (FALLBACKS["qwen3_5"], CHATML + "<think>\n\n</think>\n\n", "Hello"),
    "unclosed": (FALLBACKS["qwen2"], CHATML, "<think>\nHm, and"),
    "call": (FALLBACKS["qwen2"], CHATML, f"I look.\n<tool_call>\n{CALL}\n</tool_call><|im_end|>"),
    "calls": (
        FALLBACKS["qwen2"],
        CHATML,
        f"<think>a</think>\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{OTHER}</tool_call>",
    ),
    "around": (FALLBACKS["qwen2"], CHATML, f"before <tool_call>{OTHER}</tool_call> after"),
    "tags": (FALLBACKS["qwen3_5"], CHATML + "<think>\n", f"Hm</think>\nSo:\n{XML_CALL}\n{XML_CALL}"),
    "gemma": (
        FALLBACKS["gemma4"],
        "<|turn>user\nhi<turn|>\n<|turn>model\n",
        f"<|channel>thought\nHm<channel|>{GEMMA}{GEMMA}<|tool_response>",
    ),
    "gpt-oss": (
        GPT_OSS,
        "<|start|>user<|message|>hi<|end|><|start|>assistant",
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
        f"<|constrain|>json<|message|>{json.dumps(NESTED)}<|call|>",
    ),
    "gpt-oss text": (
        GPT_OSS,
        "<|start|>assistant",
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>",
    ),
    "command": (
        COMMAND,
        "<|USER_TOKEN|>hi<|CHATBOT_TOKEN|>",
        '<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n  {"tool_call_id": "0", "tool_name": "weather", '
        '"parameters": {"city": "日本"}}, {"tool_name": "time", "parameters": {}}\n]<|END_ACTION|>',
    ),
    "lines": (LINES, "<bot-12>", "[T]a[/T] x [THINK]b[/THINK]!f\na= [1]\nbad\nb=x=y\n\n! end"),
}


def run(tmp_path, cases):
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(cases))
    printed = subprocess.run([worker.TOOLS / "reply_dump", file], capture_output=True, text=True, check=True)
    return json.loads(printed.stdout)


def message_of(template, prompt, text):
    """What transformers' events give: the texts of regions, and calls."""
    parser = ResponseParser(template, prefix=prompt, tools=TOOLS)
    events = parser.feed(text)
    events += parser.finalize()[1]
    closed = [(event["field"], event["value"]) for event in events if event["type"] == "region_close"]
    join = {name: field.get("join", "\n") for name, field in template["fields"].items()}
    texts = {"content": "", "reasoning": ""}
    calls = []
    for field, value in closed:
        if field == "tool_calls":
            calls += value if isinstance(value, list) else [value]
        elif value:
            name = "content" if field == "content" else "reasoning"
            texts[name] += (join[field] if texts[name] else "") + value
    return texts | {"calls": [call["function"] for call in calls]}


def decoded(message):
    assert "calls" in message, message
    return message | {"calls": [call | {"arguments": json.loads(call["arguments"])} for call in message["calls"]]}


def test_response_templates_equal_those_of_transformers(tmp_path):
    cases = [
        {"template": template, "prompt": prompt, "text": text, "tools": TOOLS}
        for template, prompt, text in TEMPLATES.values()
    ]
    for (name, (template, prompt, text)), message in zip(TEMPLATES.items(), run(tmp_path, cases)):
        assert decoded(message) == message_of(template, prompt, text), name


WEATHER = {"name": "weather", "arguments": NESTED}
TIME = {"name": "time", "arguments": {}}
SHORT = {"name": "weather", "arguments": {"city": "Zürich 日本", "days": 3}}
ARGUMENTS = json.dumps(SHORT["arguments"], ensure_ascii=False)
LIST = f"[{CALL}, {OTHER}]"
HEADER = "<|start_header_id|>assistant<|end_header_id|>\n\n"
FORMS = {
    # form: prompt, text, content, reasoning, calls
    "chatml json": (
        "chatml",
        CHATML,
        f"<think>Hm</think>\nSo\n<tool_call>\n{CALL}\n</tool_call>",
        "So",
        "Hm",
        [WEATHER],
    ),
    "chatml tags": (
        "chatml",
        CHATML,
        "Hi <tool_call>\n<function=weather>\n<parameter=city>\nZürich 日本\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>"
        "\n</function>\n</tool_call>\n<function=time></function>",
        "Hi",
        "",
        [SHORT, TIME],
    ),
    "deepseek": (
        "llama",
        "<｜User｜>hi<｜Assistant｜><think>\n",
        "Hm\n</think>\n\nSo<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        f"{ARGUMENTS}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n{{}}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "So",
        "Hm",
        [SHORT, TIME],
    ),
    "llama": ("llama", HEADER, f'{{"name": "weather", "parameters": {ARGUMENTS}}}', "", "", [SHORT]),
    "llama tag": (
        "llama",
        HEADER,
        f'\x1e<|python_tag|>\x1e{{"name": "weather", "parameters": {ARGUMENTS}}}',
        "",
        "",
        [SHORT],
    ),
    "llama object": ("llama", HEADER, '{"name": "Bob", "age": 3}', '{"name": "Bob", "age": 3}', "", []),
    "llama text": (
        "llama",
        HEADER,
        'See {"name": "f", "parameters": {}}',
        'See {"name": "f", "parameters": {}}',
        "",
        [],
    ),
    "mistral array": ("mistral", "[INST] hi[/INST]", f"\x1e[TOOL_CALLS]\x1e {LIST}", "", "", [WEATHER, TIME]),
    "mistral named": (
        "mistral",
        "[INST] hi[/INST]",
        f"\x1e[THINK]\x1eHm\x1e[/THINK]\x1eSo\x1e[TOOL_CALLS]\x1eweather\x1e[ARGS]\x1e{ARGUMENTS}"
        "\x1e[TOOL_CALLS]\x1etime\x1e[ARGS]\x1e{}",
        "So",
        "Hm",
        [SHORT, TIME],
    ),
    "glm": (
        "glm",
        "<|user|>\nhi<|assistant|>\n",
        "<think>Hm</think>\nSo\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Zürich 日本</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call><tool_call>time</tool_call>",
        "So",
        "Hm",
        [SHORT, TIME],
    ),
    "phi": (
        "phi",
        "<|user|>hi<|end|><|assistant|>",
        f"\x1e<|tool_call|>\x1e{LIST}\x1e<|/tool_call|>\x1e",
        "",
        "",
        [WEATHER, TIME],
    ),
    "phi functools": ("phi", "<|assistant|>", f"functools{LIST}", "", "", [WEATHER, TIME]),
    "granite": (
        "granite",
        "<|start_of_role|>assistant<|end_of_role|>",
        f"\x1e<|tool_call|>\x1e{LIST}",
        "",
        "",
        [WEATHER, TIME],
    ),
    "command": (
        "command",
        "<|START_OF_TURN_TOKEN|>\x1e<|CHATBOT_TOKEN|>".replace("\x1e", ""),
        "<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>So<|END_RESPONSE|>",
        "So",
        "Hm",
        [],
    ),
    "command call": (
        "command",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        f'<|START_ACTION|>[\n{{"tool_call_id": "0", "tool_name": "weather", "parameters": {ARGUMENTS}}}\n]'
        "<|END_ACTION|>",
        "",
        "",
        [SHORT],
    ),
    "command-r": (
        "command-r",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        f'Action: ```json\n[\n    {{"tool_name": "weather", "parameters": {ARGUMENTS}}}\n]```',
        "",
        "",
        [SHORT],
    ),
    "harmony": (
        "harmony",
        "<|start|>assistant",
        "\x1e<|channel|>\x1eanalysis\x1e<|message|>\x1eHm\x1e<|end|>\x1e\x1e<|start|>\x1eassistant\x1e<|channel|>\x1e"
        "commentary\x1e<|message|>\x1eI look.\x1e<|end|>\x1e\x1e<|start|>\x1eassistant\x1e<|channel|>\x1ecommentary "
        f"to=functions.weather \x1e<|constrain|>\x1ejson\x1e<|message|>\x1e{ARGUMENTS}",
        "I look.",
        "Hm",
        [SHORT],
    ),
    "harmony recipient": (
        "harmony",
        "<|start|>assistant",
        f" to=functions.weather<|channel|>commentary <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
        "",
        "",
        [SHORT],
    ),
    "harmony plain": ("harmony", "<|start|>assistant", "Hello", "Hello", "", []),
    "minimax": (
        "minimax",
        "]~b]ai\n<think>\n",
        'Hm\n</think>\n\n<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Zürich 日本</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="time">\n</invoke>\n</minimax:tool_call>',
        "",
        "Hm",
        [SHORT, TIME],
    ),
    "seed": (
        "seed",
        "<seed:bos>assistant\n",
        "<seed:think>Hm</seed:think>So\n<seed:tool_call>\n<function=weather>\n<parameter=city>Zürich 日本</parameter>\n"
        "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>",
        "So",
        "Hm",
        [SHORT],
    ),
    "hunyuan": (
        "hunyuan",
        "hi<|extra_0|>",
        f"<think>\nHm\n</think>\n<answer>\nSo\n</answer><tool_calls>\n{LIST}\n</tool_calls>",
        "So",
        "Hm",
        [WEATHER, TIME],
    ),
    "ernie": (
        "ernie",
        CHATML,
        f"<think>\nHm\n</think>\n\n<response>\nSo\n</response>\n<tool_call>{CALL}</tool_call>",
        "So",
        "Hm",
        [WEATHER],
    ),
    "exaone": ("exaone", "[|user|]hi\n[|assistant|]\n", f"<tool_call>{CALL}</tool_call>", "", "", [WEATHER]),
    "reasoning": ("reasoning", "<|assistant|>\n<think>\n", "Hm</think>\nSo", "So", "Hm", []),
}
BROKEN = {
    # text, content, calls
    "no JSON": ("So <tool_call>oops</tool_call> on", "So\n<tool_call>oops</tool_call>\non", []),
    "no name": ('<tool_call>{"arguments": {}}</tool_call>', '<tool_call>{"arguments": {}}</tool_call>', []),
    "a list in place of a name": ('<tool_call>{"name": []}</tool_call>', '<tool_call>{"name": []}</tool_call>', []),
    "cut in the name": ('<tool_call>\n{"name": "we', '<tool_call>\n{"name": "we', []),
    "cut in the tag": ("So <tool_ca", "So <tool_ca", []),
    "cut in arguments": ('<tool_call>{"name": "f", "arguments": {"a": "b', "", [("f", '{"a": "b')]),
    "arguments first": ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [("f", '{"a": 1}')]),
    "no arguments": ('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
    "arguments of text": (r'<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>', "", [("f", '{"a": 1}')]),
    "a bracket too many": ('<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call>', "", [("f", '{"a": 1}')]),
    "broken arguments": ('<tool_call>{"name": "f", "arguments": {"a": }}</tool_call>', "", [("f", '{"a": }')]),
    "two objects": ('<tool_call>{"name": "f"}\n{"name": "g"}</tool_call>', "", [("f", "{}"), ("g", "{}")]),
    "an end alone": ("a </tool_call> b </think>", "a </tool_call> b </think>", []),
    "special tokens": ("a\x1e<|x|>\x1eb \x1e<|im_end|>\x1e", "ab", []),
    "whitespace": (" \n\t" * 800 + "a", "a", []),
}


def test_forms_of_families(tmp_path):
    cases = [
        {"form": form, "prompt": prompt, "text": text, "tools": TOOLS} for form, prompt, text, *_ in FORMS.values()
    ]
    for (name, (_, _, _, content, reasoning, calls)), message in zip(FORMS.items(), run(tmp_path, cases)):
        assert decoded(message) == {"content": content, "reasoning": reasoning, "calls": calls}, name


def test_text_that_does_not_parse_is_content(tmp_path):
    cases = [{"form": "chatml", "prompt": CHATML, "text": text} for text, *_ in BROKEN.values()]
    for (name, (_, content, calls)), message in zip(BROKEN.items(), run(tmp_path, cases)):
        expected = [{"name": call, "arguments": arguments} for call, arguments in calls]
        assert message == {"content": content, "reasoning": "", "calls": expected}, name
    quiet = [{"form": form, "prompt": "", "text": text, "calls": False} for form, _, text, *_ in FORMS.values()]
    for (name, case), message in zip(FORMS.items(), run(tmp_path, quiet)):
        assert message.get("calls") == [] and (message["content"] or not case[-1]), (name, message)


REFUSED = {
    "no fields": ({"start_anchor": "a"}, "fields"),
    "no anchor": ({"fields": {"content": {}}}, "start_anchor"),
    "unknown key": ({"start_anchor": "a", "fields": {"content": {"opens": "x"}}}, "opens"),
    "look-around": ({"start_anchor": "a", "fields": {"content": {"open_pattern": "(?=a)b"}}}, "not supported"),
    "huge": ({"start_anchor": "a", "fields": {"content": {"open_pattern": "(?:a{999}){999}"}}}, "not supported"),
    "long": ({"start_anchor": "a", "fields": {"content": {"open_pattern": "a" * 5000}}}, "5000 bytes"),
    "version": ({"version": 2, "start_anchor": "a", "fields": {"content": {}}}, "version"),
    "two without open": ({"start_anchor": "a", "fields": {"content": {}, "thinking": {}}}, "thinking"),
    "no list": ([], "object"),
}


def test_response_templates_that_are_not_supported(tmp_path):
    answers = run(tmp_path, [{"template": template, "text": ""} for template, _ in REFUSED.values()])
    for (name, (_, reason)), answer in zip(REFUSED.items(), answers):
        assert reason in answer.get("refused", ""), (name, answer)
    [answer] = run(tmp_path, [{"template": {}, "form": "chatml", "prompt": CHATML, "text": "<think>a</think>b"}])
    assert answer == {"content": "b", "reasoning": "a", "calls": []}, "the form of the family is used"


@pytest.mark.parametrize("form", ["", "unknown"])
def test_unknown_forms(tmp_path, form):
    [answer] = run(tmp_path, [{"form": form, "text": ""}])
    assert "refused" in answer and (not form or "chatml" in answer["refused"])
