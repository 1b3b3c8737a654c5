# SPDX-License-Identifier: Apache-2.0
"""A tiny random model of the family Qwen2, whose calls of tools have the family's form.

Its weights are random but for a bias of each token: strings and answers end after some tokens, answers are printable
and never empty, a reply does not reason and has one call. Without it an agent would seldom end within its limits.
"""

import torch
import transformers
from test_endpoints import build
from test_tool_calls import SIZES, tokenizer

POSITIONS = 8192  # a token is about one letter, and a coding client's tools are many
TEMPLATE = """{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}\
{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | \
tojson }}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
END = "</s>"
ONE, LINE = 0, 1  # dimensions of the states: the first is the same for all tokens, the second marks a line feed


def bias(token, text):
    """What is added to the token's logit."""
    if token == END:
        return 1.0
    if text in ('"', "}", "]", ","):  # end what a constraint leaves open
        return 3.0
    unwanted = not text.strip() or not (text.isascii() and text.isprintable())
    # "<think>" would begin a reasoning that seldom ends
    return -16.0 if unwanted or token.startswith(("<", "h", "th")) else 0.0


def shape(model, fast):
    """Gives the model's tokens their biases."""
    line = fast.convert_tokens_to_ids("Ċ")
    end = fast.convert_tokens_to_ids(END)
    embeddings, head = model.model.embed_tokens.weight, model.lm_head.weight
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[[ONE, LINE]] = layer.mlp.down_proj.weight[[ONE, LINE]] = 0
        model.model.norm.weight[:] = 1
        embeddings[:, LINE] = 0
        embeddings[:, ONE] = embeddings[line, LINE] = 4 * embeddings[:, LINE + 1 :].std()
        states = model.model(torch.arange(2, model.config.vocab_size)[None]).last_hidden_state[0]
        head[:, [ONE, LINE]] = 0
        head /= (states @ head.T).std()
        texts = [fast.decode([token]) for token in range(model.config.vocab_size)]
        biases = [bias(fast.convert_ids_to_tokens(token) or "", text) for token, text in enumerate(texts)]
        head[:, ONE] = torch.tensor(biases) / states[:, ONE].mean()
        # the prompt ends with a line feed: an answer has a token before its end
        head[end, LINE] = -20 / states[line - 2, LINE]


def make(folder):
    fast = tokenizer(TEMPLATE, ["<|im_start|>", "<|im_end|>"])
    config = transformers.Qwen2Config(**{**SIZES, "max_position_embeddings": POSITIONS})
    model = build(folder, "Qwen2ForCausalLM", config, fast)
    shape(model, fast)
    model.generation_config.do_sample = True  # clients that send no temperature get samples
    model.save_pretrained(folder)
