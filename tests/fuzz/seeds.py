# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpora: seeds.py FOLDER. They are small valid inputs of every target, so that the fuzzers begin
with accepted inputs. It also writes FOLDER/../worlds once: a tiny checkpoint per model type, to which policies are
applied.
"""

import base64
import collections
import io
import json
import pathlib
import pickle
import re
import struct
import sys
import zipfile

import adapter_seeds
import gguf_seeds
import PIL.Image
import quantized_seeds
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = [
    {},
    {"__metadata__": {"format": "pt"}},
    {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}},
    {
        "a": {"dtype": "F16", "shape": [], "data_offsets": [0, 2]},
        "b": {"dtype": "U8", "shape": [0], "data_offsets": [2, 2]},
    },
    {
        "x.y": {"dtype": "BF16", "shape": [1, 1, 4], "data_offsets": [0, 8]},
        "z": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [8, 11]},
    },
    {
        'é"\\': {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
        "f4": {"dtype": "F4", "shape": [4], "data_offsets": [8, 10]},
    },
]


# model type -> (class, what is smaller than transformers has it)
WORLDS = {
    "gpt2": ("GPT2LMHeadModel", dict(n_embd=8, n_head=2, n_layer=2, vocab_size=11, n_positions=8)),
    "bert": ("BertForMaskedLM", {}),
    "squeezebert": ("SqueezeBertForMaskedLM", dict(embedding_size=8)),
    "deberta": (
        "DebertaForMaskedLM",
        dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=3),
    ),
    "deberta-v2": (
        "DebertaV2ForMaskedLM",
        dict(
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            position_buckets=4,
            max_relative_positions=6,
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            conv_kernel_size=3,
        ),
    ),
    "xlnet": (  # whose texts may have any length, and not even say so
        "XLNetLMHeadModel",
        dict(d_model=8, n_head=2, n_layer=2, d_inner=6, max_position_embeddings=None),
    ),
    "funnel": (
        "FunnelForMaskedLM",
        dict(
            d_model=8,
            n_head=2,
            d_head=3,
            d_inner=6,
            block_sizes=[1, 1],
            num_decoder_layers=1,
            num_hidden_layers=None,
            max_position_embeddings=None,
        ),
    ),
    "transfo-xl": (
        "TransfoXLLMHeadModel",
        dict(d_model=8, d_embed=8, n_head=2, d_head=3, d_inner=6, n_layer=1, cutoffs=[4, 7], div_val=2, mem_len=3),
    ),
    "electra": (
        "ElectraForMaskedLM",
        dict(embedding_size=6, position_embedding_type="relative_key_query", is_decoder=True),
    ),
    "albert": ("AlbertForMaskedLM", dict(embedding_size=6)),
    "convbert": ("ConvBertForMaskedLM", dict(embedding_size=6, num_groups=2, conv_kernel_size=3)),
    "luke": ("LukeForMaskedLM", dict(entity_vocab_size=7, entity_emb_size=6)),
    "mobilebert": (
        "MobileBertForMaskedLM",
        dict(embedding_size=6, intra_bottleneck_size=4, num_feedforward_networks=2),
    ),
    "mpnet": ("MPNetForMaskedLM", {}),
    "ibert": ("IBertForMaskedLM", dict(quant_mode=True)),
    "reformer": (
        "ReformerForMaskedLM",
        dict(
            num_hidden_layers=None,
            attention_head_size=4,
            attn_layers=["local", "lsh"],
            feed_forward_size=12,
            axial_pos_shape=[2, 4],
            axial_pos_embds_dim=[3, 5],
            local_attn_chunk_length=2,
            lsh_attn_chunk_length=4,
            num_buckets=[2, 4],
            hash_seed=1,
        ),
    ),
    "perceiver": (
        "PerceiverForMaskedLM",
        dict(
            num_hidden_layers=None,
            d_model=8,
            d_latents=12,
            num_latents=3,
            num_blocks=2,
            num_self_attends_per_block=1,
            num_self_attention_heads=3,
            num_cross_attention_heads=2,
            qk_channels=6,
            v_channels=12,
        ),
    ),
    "lxmert": (
        "LxmertForPreTraining",
        dict(l_layers=2, r_layers=1, x_layers=1, visual_feat_dim=5, num_qa_labels=3, num_object_labels=3),
    ),
    "gpt_neo": ("GPTNeoForCausalLM", dict(num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]])),
    "gptj": ("GPTJForCausalLM", dict(n_embd=8, n_head=2, n_layer=2, rotary_dim=2)),
    "llama": ("LlamaForCausalLM", dict(num_key_value_heads=1)),
    "olmo2": ("Olmo2ForCausalLM", dict(num_key_value_heads=1)),
    "falcon": ("FalconForCausalLM", {}),
    "bloom": ("BloomForCausalLM", dict(n_layer=2, n_head=2)),
    "vit": ("ViTForMaskedImageModeling", dict(image_size=4, patch_size=2, encoder_stride=2)),
    "t5": ("T5ForConditionalGeneration", dict(d_model=8, d_kv=4, d_ff=12, num_layers=2, num_heads=2)),
    "bart": (
        "BartForConditionalGeneration",
        dict(
            d_model=8,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=12,
            decoder_ffn_dim=12,
        ),
    ),
    "prophetnet": (  # whose configuration has no number of layers for both stacks
        "ProphetNetForConditionalGeneration",
        dict(
            num_hidden_layers=None,
            num_encoder_layers=1,
            num_decoder_layers=1,
            num_decoder_attention_heads=2,
            encoder_ffn_dim=12,
            decoder_ffn_dim=12,
            num_buckets=4,
            relative_max_distance=6,
        ),
    ),
    "wav2vec2": (
        "Wav2Vec2ForXVector",
        dict(
            conv_dim=[4, 6],
            conv_kernel=[3, 2],
            conv_stride=[2, 1],
            num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2,
            tdnn_dim=[4, 5],
            tdnn_kernel=[2, 1],
            tdnn_dilation=[1, 1],
            xvector_output_dim=3,
            use_weighted_layer_sum=True,
        ),
    ),
    "detr": (
        "DetrForSegmentation",
        dict(
            hidden_size=None,
            num_hidden_layers=None,
            num_attention_heads=None,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=8,
            decoder_attention_heads=2,
            encoder_ffn_dim=12,
            decoder_ffn_dim=12,
            num_queries=3,
            backbone_config=dict(
                model_type="resnet",
                embedding_size=4,
                hidden_sizes=[4, 4, 4, 8],
                depths=[1, 1, 1, 1],
                out_features=["stage1", "stage2", "stage3", "stage4"],
            ),
        ),
    ),
}
SMALL = dict(
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    vocab_size=11,
    max_position_embeddings=8,
)


def write_worlds(folder):
    sys.path.append(str(ROOT / "tests" / "parity"))
    import removed_classes
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for model_type, (name, sizes) in WORLDS.items():
        kind = getattr(removed_classes, name, None) or getattr(transformers, name)
        settings = {key: value for key, value in {**SMALL, **sizes}.items() if value is not None}
        kind(kind.config_class(**settings)).save_pretrained(folder / model_type)
    tower = {**SMALL, "projection_dim": 4}
    clip = transformers.CLIPConfig(
        text_config=tower, vision_config={**tower, "image_size": 4, "patch_size": 2}, projection_dim=4
    )
    transformers.CLIPModel(clip).save_pretrained(folder / "clip")
    answers = {**WORLDS["gpt2"][1], "n_embd": 6, "is_decoder": True, "add_cross_attention": True}
    pair = transformers.EncoderDecoderConfig(
        encoder={"model_type": "bert", **SMALL}, decoder={"model_type": "gpt2", **answers}
    )
    transformers.EncoderDecoderModel(pair).save_pretrained(folder / "encoder-decoder")
    for name, model, sees in (
        ("vision", transformers.VisionEncoderDecoderModel, "vit"),
        ("speech", transformers.SpeechEncoderDecoderModel, "wav2vec2"),
    ):
        pair = model.config_class(
            encoder={"model_type": sees, **SMALL, **WORLDS[sees][1]}, decoder={"model_type": "gpt2", **answers}
        )
        model(pair).save_pretrained(folder / f"{name}-encoder-decoder")
    write_retrieval(folder / "rag")
    (folder / "made").write_text("")


def write_retrieval(folder):
    import transformers
    from safetensors.torch import save_file

    question = transformers.DPRConfig(**SMALL)
    generator = transformers.BartConfig(
        vocab_size=11,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=12,
        decoder_ffn_dim=12,
        max_position_embeddings=8,
    )
    config = transformers.RagConfig.from_question_encoder_generator_configs(
        question, generator, n_docs=2, max_combined_length=8
    )
    transformers.RagTokenForGeneration(config).save_pretrained(folder)
    (folder / "index").mkdir()
    save_file({"embeddings": torch.ones(3, 8)}, folder / "index/embeddings.safetensors")


def headers():
    for header in HEADERS:
        text = json.dumps(header).encode()
        size = max([entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"], default=0)
        yield struct.pack("<Q", len(text)) + text + bytes(size)


def archives():
    base = torch.arange(12.0).reshape(3, 4)
    module = torch.nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    states = [
        {},
        {"a": base, "t": base.t(), "c": base[:, 1:3]},
        {"h": torch.ones(2).half(), "p": torch.nn.Parameter(torch.ones(3)), "i": torch.arange(3)},
        module.state_dict(),
        {"z": torch.ones(1, dtype=torch.complex64), "e": torch.empty(0, 3), "s": torch.tensor(True)},
    ]
    for state in states:
        for protocol in (2, 4):
            file = io.BytesIO()
            torch.save(state, file, pickle_protocol=protocol)
            yield file.getvalue()


def pickles():
    for archive in archives():
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            yield opened.read(next(name for name in opened.namelist() if name.endswith("data.pkl")))


def policies():
    for path in sorted((ROOT / "policies").glob("*.yaml")):
        text = path.read_bytes()
        yield text
        name = path.stem.encode()  # short ones, which a change is more likely to turn into something new
        yield b"model_type: " + name + b"\nextends: " + name + b"\n"
        yield (
            b"model_type: "
            + name
            + b"\nextends: "
            + name
            + b'\nlet: {eps: "1e-5", layers: "layers ?? 2", heads: 3}\nignore: ["h.{l}.x"]\nrename: {a: '
            b'b}\nrefuse: {"l == 1": no}\n'
        )


def expressions():
    texts = {
        "n_inner ?? 4*hidden",
        "hidden // 12 % 7 ** 2",
        "-big - small",
        "types[0][1]",
        "expand(types)[l]",
        "pair(image_size ?? 224)[0] // pair(patch_size ?? 16)[0]",
        "map.a.b == 2 and not tied",
        "last(split(act, '-'))",
        "contains(split(act, '-'), 'gelu')",
        "starts(act, 'gated-') ? 'a' : list[3][0]",
        "(hidden / 3) ** -0.5",
        "none ?? missing ?? false",
        "1e308 * 10",
        "l >= 3 or l != 2",
    }
    for path in sorted((ROOT / "policies").glob("*.yaml")):
        texts |= {text for text in re.findall(r'"([^"\n]+)"', path.read_text()) if len(text) < 200}
    yield from (text.encode() for text in sorted(texts))


def requests():
    """Two bytes that choose model and route (tests/fuzz/request.cpp), then a body."""
    text, generation = (
        "the cat",
        {
            "max_tokens": 3,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 4,
            "seed": 1,
            "stop": ["x", "y"],
            "presence_penalty": 1,
            "frequency_penalty": -1,
            "logit_bias": {"5": 2},
        },
    )
    hugging = {
        "max_new_tokens": 3,
        "num_beams": 2,
        "no_repeat_ngram_size": 2,
        "do_sample": True,
        "repetition_penalty": 1.2,
        "bad_words": ["x"],
        "length_penalty": 0.5,
        "early_stopping": "never",
    }
    bodies = {
        0: [
            {"prompt": text, **generation},
            {"prompt": [[1, 2], [3]], "stream": True, "stream_options": {"include_usage": True}},
            {"prompt": ["a", "b"], "n": 2, "logprobs": 2, "echo": True},
            {"prompt": "a", "structured_outputs": {"choice": ["a", "b"]}},
            {"prompt": "a", "structured_outputs": {"json": {"type": "object"}, "regex": None}},
        ],
        1: [
            {
                "messages": [
                    {"role": "system", "content": "s"},
                    {"role": "user", "content": [{"type": "text", "text": text}]},
                ],
                **generation,
            },
            {"messages": [{"role": "user", "content": text}], "stream": True, "logprobs": True, "top_logprobs": 2},
            {
                "messages": [{"role": "user", "content": text}],
                "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "null"}}},
            },
        ],
        2: [{"inputs": text, "parameters": hugging}, {"inputs": text, **hugging, "stream": True}],
        3: [
            {"input": text, "dimensions": 2, "pooling": "max"},
            {"input": [[1, 2], [3]], "encoding_format": "base64"},
            {"input": [text, {"text": "a"}], "normalize": False},
        ],
        4: [
            {"inputs": text, "top_k": 1},
            {"inputs": [text, ["a", "b"], {"text": "a", "text_pair": "b"}], "function_to_apply": "sigmoid"},
            {"inputs": text, "aggregation_strategy": "simple", "ignore_labels": []},
            {"prompt": "a", "choices": ["b", "c"]},
            {"inputs": {"prompt": "a", "choices": ["b", "c"]}},
        ],
        5: [{"inputs": "a [MASK] b [MASK]", "top_k": 2, "targets": ["c", "dd"]}],
        6: [
            {"question": "who?", "context": "Anna was here " * 9, "top_k": 3, "doc_stride": 4, "max_seq_len": 40},
            {"inputs": {"question": "q", "context": "c"}, "handle_impossible_answer": True},
        ],
        7: [{"source": "a", "sentences": ["b", "c"]}, {"inputs": {"source_sentence": "a", "sentences": ["b"]}}],
        8: [{"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True}],
        9: [
            {
                "inputs": {"input_ids": [[1, 2], [3, 4]], "attention_mask": [[1, 1], [1, 0]]},
                "hidden_states": True,
                "outputs": ["logits"],
            },
            {"text": "a b c", "entity_spans": [[0, 1], [2, 3]], "entities": ["[MASK]", "A"], "truncate": True},
        ],
        10: [{"prompt": text, "add_special_tokens": False, "return_token_strs": True}],
        11: [{"tokens": [1, 2, 300]}],
        12: [],
    }
    models = {
        0: [0],
        1: [0],
        2: [0],
        3: [0, 6],
        4: [1, 2, 3, 7, 9],
        5: [5],
        6: [4],
        7: [6, 0],
        8: [9, 6],
        9: [1, 4, 6],
        10: [0],
        11: [0],
        12: [0],
    }
    for route, kinds in models.items():
        for kind in kinds:
            yield from (bytes([kind, route]) + json.dumps(body).encode() for body in bodies[route])
    yield from wire_forms()
    yield from of_images()
    for pair in ({"queries": text, "documents": ["b", "c"]}, {"text_1": ["a", "b"], "text_2": ["b", "c"]}):
        yield from (bytes([kind, 22]) + json.dumps(pair).encode() for kind in (9, 6))
    yield from (bytes([kind, 23]) + json.dumps({"inputs": ["a b", text]}).encode() for kind in (5, 6))
    yield from (
        bytes([6, 3]) + json.dumps({"input": text, **prompt}).encode()
        for prompt in ({"prompt": "a "}, {"prompt_name": "query"}, {"input_type": "document"})
    )
    yield bytes([0, 12]) + b"once%20upon"
    yield bytes([0, 128 | 12]) + b"max_tokens=3"
    for kind in range(4):
        for route in (13, 14, 15):
            yield bytes([32 | kind, 64 | route]) + wav()
            options = {"response_format": "verbose_json", "timestamp_granularities[]": "word", "chunk_length_s": "0.02"}
            yield bytes([32 | kind, 32 | route]) + form({**options, "language": "de"} if route == 13 else {})
    picture = base64.b64encode(dot()).decode()
    limits = {"threshold": 0.1, "mask_threshold": 0, "overlap_mask_area_threshold": 0.5}
    for kind in range(2):
        for route, options in ((16, {"threshold": 0.1}), (17, {**limits, "subtask": "semantic"}), (17, limits)):
            yield bytes([64 | kind, 64 | route]) + dot()
            yield bytes([64 | kind, route]) + json.dumps({"inputs": picture, **options}).encode()
            yield (
                bytes([64 | kind, route]) + json.dumps({"inputs": [{"image": picture}], "parameters": options}).encode()
            )
    header = json.dumps({"input_ids": {"dtype": "I64", "shape": [1, 2], "data_offsets": [0, 16]}}).encode()
    yield bytes([1, 32 | 9]) + struct.pack("<Q", len(header)) + header + struct.pack("<qq", 1, 2)


def wire_forms():
    """Requests in the forms of Anthropic's messages (routes 18 and 19) and OpenAI's responses (20, and
    24 for the items of one)."""
    schema = {"type": "object", "properties": {"b": {"type": "string"}}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": ""},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"b": "c"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r", "is_error": False}]},
    ]
    messages = {
        "max_tokens": 3,
        "messages": turns,
        "system": [{"type": "text", "text": "s"}],
        "tools": [{"name": "f", "input_schema": schema}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stop_sequences": ["x"],
    }
    items = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "r"},
        {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "a"},
        {"type": "custom_tool_call_output", "call_id": "2", "output": "r"},
    ]
    grammar = {"syntax": "regex", "definition": "a+"}
    custom = {"type": "custom", "name": "p", "format": {"type": "grammar", **grammar}}
    of_chat = {"name": "p", "format": {"type": "grammar", "grammar": grammar}}
    chat = {
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"type": "custom", "custom": of_chat}],
        "tool_choice": {"type": "custom", "custom": {"name": "p"}},
        "max_tokens": 3,
    }
    yield bytes([0, 1 | 32]) + json.dumps(chat).encode()
    responses = {
        "input": items,
        "instructions": "s",
        "tools": [{"type": "function", "name": "f", "parameters": schema}, custom],
        "text": {"format": {"type": "json_object"}},
        "include": ["message.output_text.logprobs"],
        "max_output_tokens": 3,
    }
    for stream in (False, True):
        yield bytes([0, 18]) + json.dumps({**messages, "stream": stream}).encode()
        yield bytes([0, 20]) + json.dumps({**responses, "stream": stream}).encode()
        yield bytes([0, 20]) + json.dumps({"input": "a", "store": True, "stream": stream}).encode()
    yield bytes([0, 18]) + json.dumps({"max_tokens": 3, "messages": [{"role": "assistant", "content": "a"}]}).encode()
    yield bytes([0, 18]) + json.dumps({**messages, "output_config": {"format": {"type": "json_schema"}}}).encode()
    yield bytes([0, 19]) + json.dumps(messages).encode()
    for query in (b"limit=2&order=asc", b"after=msg_1&include[]=a", b"limit=x"):
        yield bytes([0, 24 | 64 | 128]) + query  # of the response that the request before has stored


def of_images():
    """Conversations of the model that reads images, in each wire form."""
    for form in ("PNG", "JPEG", "WEBP"):
        data = base64.b64encode(dot(form)).decode()
        url = f"data:image/{form.lower()};base64,{data}"
        chat = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}, {"type": "text", "text": "a"}]
        for content in (chat, chat[::-1], [{"type": "image_url", "image_url": url}]):
            body = {"messages": [{"role": "user", "content": content}], "max_tokens": 3}
            yield bytes([8, 1]) + json.dumps(body).encode()
        source = {"type": "base64", "media_type": f"image/{form.lower()}", "data": data}
        turn = {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "a"}]}
        for route in (18, 19):
            yield bytes([8, route]) + json.dumps({"max_tokens": 3, "messages": [turn]}).encode()
        parts = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "a"}]
        yield bytes([8, 20]) + json.dumps({"input": [{"role": "user", "content": parts}]}).encode()


def dot(form="PNG"):
    """A picture of 3 x 2 pixels."""
    file = io.BytesIO()
    PIL.Image.new("RGB", (3, 2), (9, 80, 200)).save(file, form)
    return file.getvalue()


def wav(channels=1, bits=16, coding=1, rate=8000, data=bytes(range(256)) * 4):
    width = (bits + 7) // 8 * channels
    header = struct.pack("<HHIIHH", coding, channels, rate, rate * width, width, bits)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(data))
        + b"WAVEfmt \x10\0\0\0"
        + header
        + b"data"
        + (struct.pack("<I", len(data)) + data)
    )


def form(fields):
    """A form with boundary b (tests/fuzz/request.cpp)."""
    start = b"--b\r\nContent-Disposition: form-data; name="
    parts = [start + name.encode() + b"\r\n\r\n" + value.encode() + b"\r\n" for name, value in fields.items()]
    return b"".join(parts) + start + b'"file"; filename="a.wav"\r\n\r\n' + wav() + b"\r\n--b--\r\n"


def passages():
    """What the file is, where it is cut (tests/fuzz/passages.cpp), then the file."""
    line = json.dumps({"title": '"A"', "text": "b  c", "id": [1, {"n": None}]}, ensure_ascii=False).encode()
    for kind, cut in ((1, 0), (2, 0), (2, len(line) + 1), (2, 9)):
        yield bytes([kind, cut]) + line + b"\n" + line.replace(b"b", "é".encode()) + b"\n"
    yield b"\1\0" + line
    for kind, width in (("F32", 4), ("BF16", 2)):
        header = json.dumps({"embeddings": {"dtype": kind, "shape": [2, 3], "data_offsets": [0, 6 * width]}}).encode()
        yield b"\0\0" + struct.pack("<Q", len(header)) + header + bytes(6 * width)


def vocabularies():
    """What the rest is (tests/fuzz/vocabulary.cpp): a pickle, or changes of a dictionary."""
    tokens = ["<eos>", "<unk>", "a", "b", "ab", "é"]
    contents = {
        "sym2idx": collections.OrderedDict((token, i) for i, token in enumerate(tokens)),
        "idx2sym": tokens,
        "counter": collections.Counter("aab"),
        "unk_idx": 1,
        "numbers": [1.5, -3, 70000, 2**40, True, None, {1}, (1, 2, 3, 4), b"x"],
    }
    for protocol in range(6):
        yield b"\0" + pickle.dumps(contents, protocol)
    yield b"\1"
    yield from (bytes([1, file, offset, 0, value]) for file in range(4) for offset in (0, 20, 80) for value in (0, 255))


def constraints():
    """The kind (tests/fuzz/constraint.cpp), numbers that choose tokens, a null byte, then the constraint's text."""
    schemas = [
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 4}}, "additionalProperties": False},
        {
            "anyOf": [{"enum": ["é", None]}, {"$ref": "#/$defs/n"}],
            "$defs": {"n": {"type": "number", "multipleOf": 0.5}},
        },
        {"type": "array", "prefixItems": [{"const": 1}], "items": {"format": "date"}, "minItems": 2},
        {"allOf": [{"required": ["b"]}, {"patternProperties": {"^b": {"pattern": "x+$"}}, "minProperties": 1}]},
    ]
    texts = [(0, json.dumps(schema)) for schema in schemas]
    texts += [(1, r"(a|[^\d\s]{2,3})+x?$"), (1, r"\p{Lu}\x41.*"), (2, '["yes", "\\u00e9.*"]')]
    texts += [(3, 'start: "a" b{1,3} | %json {"type": "null"}\nb: /[x-z]/ <|end|>\n'), (3, "start: %regex { }")]
    for kind, text in texts:
        yield bytes([kind]) + bytes(range(1, 40, 3)) + b"\0" + text.encode()


def replies():
    """Where the reply is cut (tests/fuzz/reply.cpp), a response template or nothing, a prompt and a reply."""
    call = '{"name": "f", "arguments": {"a": [1, "}\\"é"]}}'
    template = {
        "start_anchor_pattern": "<b.t>",
        "fields": {
            "reasoning": {"open": ["[T]", "[TH]"], "close_pattern": r"\s*\[/T", "repeats": True, "join": " "},
            "content": {"close_pattern": r"\s+\Z"},
            "tool_calls": {
                "open_pattern": r"!(?P<name>\w+)\n",
                "close": "\n!",
                "content": "kv-lines",
                "content_args": {"value_parser": {"name": "json", "args": {"unquoted_keys": True}}},
                "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
            },
        },
    }
    texts = [
        "a <think>b</think>c",
        f"<tool_call>{call}</tool_call> \n<tool_call>{call}",
        "<function=f><parameter=a>null",
    ]
    for number, text in enumerate(texts):
        yield bytes([number * 7]) + b"\0<|im_start|>assistant\n<think>\0" + text.encode()
    yield b"\5" + json.dumps(template).encode() + b"\0<bot>\0[TH]a[/T\xff<x>\xffb!f\na: {b: 1}\n\n! c"


def audio_files():
    """How to read the rest (tests/fuzz/audio.cpp), a count of damaged bytes, then a file or samples."""
    for channels, bits, coding in [(1, 8, 1), (2, 16, 1), (1, 24, 1), (1, 32, 3), (1, 64, 3), (1, 8, 6), (1, 8, 7)]:
        yield b"\x07\0" + wav(channels, bits, coding)
    yield b"\x07\0" + wav(48)
    yield b"\x07\0" + wav(rate=44100, data=b"")
    for kind in range(4):
        yield bytes([kind, 0]) + bytes(128 + 90 * (i % 17 > 8) for i in range(2000))
        yield bytes([kind, 2, 60, 0, 255, 200, 0, 1]) + bytes(i * i % 251 for i in range(3000))


WORDS = {
    "reply": [
        *("<tool_call>", "</tool_call>", "<think>", "</think>", '"name"', '"arguments"', "<function=", "</parameter>"),
        *('"open"', '"close_pattern"', '"content"', '"fields"', '"start_anchor"', '"transform"', '"json"', "\\s*"),
    ],
    "constraint": [
        *('"type"', '"object"', '"array"', '"string"', '"integer"', '"properties"', '"required"', '"items"', '"$ref"'),
        *('"#/$defs/', '"anyOf"', '"allOf"', '"oneOf"', '"enum"', '"const"', '"minimum"', '"maximum"', '"pattern"'),
        *(
            '"maxLength"',
            '"additionalProperties"',
            "start: ",
            "%json {",
            "%lark {",
            "%regex {",
            "[lazy]",
            "(?s:",
            "{1,9}",
        ),
    ],
    "vocabulary": ["sym2idx", "idx2sym", "unk_idx", "collections", "OrderedDict", "Counter", "R.", "(", "}", "]", "tR"],
    "audio": ["RIFF", "WAVE", "fmt ", "data", "LIST", "fact", "fLaC", "OggS", "OpusHead", "vorbis", "ID3", "Xing"],
    "hub": [
        '"sha":',
        '"siblings":',
        '"rfilename":',
        '"blobId":',
        '"lfs":',
        '"sha256":',
        '"weight_map":',
        "../",
        "\\u0000",
        "https://",
        "http://",
        "//",
        "[::1]",
        "%2e",
        ":99999",
        "@",
    ],
    "request": [
        '{"',
        '":',
        "[[",
        "]]",
        "null",
        "true",
        "-1",
        "1e308",
        '"prompt"',
        '"inputs"',
        '"input"',
        '"parameters"',
        '"messages"',
        '"role"',
        '"type"',
        '"assistant"',
        '"tool_use"',
        '"tool_result"',
        '"thinking"',
        '"function_call"',
        '"function_call_output"',
        '"reasoning"',
        '"previous_response_id"',
        '"content"',
        '"stream"',
        '"documents"',
        '"text_pair"',
        '"max_tokens"',
        '"top_k"',
        '"n"',
        '"logprobs"',
        '"stop"',
        "[MASK]",
        '"tokens"',
        '"truncate"',
        '"model"',
        '"tiny"',
        '"input_ids"',
        '"num_beams"',
        '"num_return_sequences"',
        "\r\n--b\r\n",
        "\r\n--b--",
        "Content-Disposition: form-data; name=",
        "temperature",
        "\\ud800",
    ],
    "expression": [
        "??",
        "**",
        "//",
        "==",
        "!=",
        "<=",
        ">=",
        "starts(",
        "split(",
        "contains(",
        "last(",
        "expand(",
        "has(",
        "true",
        "false",
        "null",
        "and",
        "or",
        "not",
        "hidden",
        "types",
        "list",
        "map",
        "big",
        "small",
    ],
    "policy": [
        "when: ",
        "extends: ",
        "model_type: ",
        "stacks:",
        "like: ",
        "prefix: ",
        "refuse:",
        "ignore: ",
        "rename: ",
        "fused: ",
        "&a ",
        "*a",
        "<<: ",
        "{l}",
        "- ",
        "? ",
    ],
    "pickle": [
        "ccollections\nOrderedDict\n",
        "ctorch._utils\n_rebuild_tensor_v2\n",
        "ctorch._utils\n_rebuild_parameter\n",
        "ctorch\nFloatStorage\n",
        "ctorch\nHalfStorage\n",
    ],
    "torch_file": ["PK\x01\x02", "PK\x03\x04", "PK\x05\x06", "PK\x06\x06", "PK\x06\x07", "data.pkl", "byteorder"],
    "passages": ['{"title": "', '", "text": "', '"}\n', '"embeddings"', '"dtype":', '"shape":', '"BF16"', "\\ud800"],
    "quantized": quantized_seeds.WORDS,
    "gguf": gguf_seeds.WORDS,
    "adapter": adapter_seeds.WORDS,
    "header": ['"dtype":', '"shape":', '"data_offsets":', '"__metadata__":', '"F32"', '"BOOL"', '"F6_E2M3"', '"C64"'],
}


def hub_answers():
    """A listing, an index and a Location, between NULs (tests/fuzz/hub.cpp)."""

    def file(name, size=10, **more):
        return {"rfilename": name, "size": size, "blobId": "b" * 40, **more}

    lfs = {"lfs": {"sha256": "a" * 64, "size": 2000, "pointerSize": 134}}
    one = {"sha": "c" * 40, "siblings": [file("config.json"), file("tokenizer.json"), file("model.safetensors", **lfs)]}
    many = {
        "sha": "d" * 40,
        "siblings": [
            file("config.json"),
            file("modules.json"),
            file("1_Pooling/config.json"),
            file("additional_chat_templates/a.jinja"),
            file("model.safetensors.index.json"),
            file("model-1.safetensors", **lfs),
            file("model-2.safetensors", **lfs),
        ],
    }
    old = {
        "sha": "e" * 40,
        "siblings": [file("pytorch_model.bin", **lfs), file("../x"), file("a//b"), file("onnx/model.onnx")],
    }
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
    for listing, place in [
        (one, "https://cdn.example.com/x?y=1&z=%20"),
        (many, "/other/place"),
        (old, "//elsewhere:8443/p"),
        ({"sha": "f" * 40, "siblings": []}, "http://[2001:db8::1]:80/"),
    ]:
        yield "\0".join([json.dumps(listing), index, place]).encode()


def escaped(word):
    return "".join(c if c.isalnum() or c in " _.:{}[]()?*<>=/!-,&" else f"\\x{ord(c):02x}" for c in word)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    if not (out.parent / "worlds/made").exists():
        write_worlds(out.parent / "worlds")
    for target, made in [
        ("header", headers),
        ("torch_file", archives),
        ("pickle", pickles),
        ("policy", policies),
        ("expression", expressions),
        ("request", requests),
        ("audio", audio_files),
        ("hub", hub_answers),
        ("passages", passages),
        ("quantized", quantized_seeds.quantized),
        ("gguf", gguf_seeds.files),
        ("adapter", adapter_seeds.adapters),
        ("vocabulary", vocabularies),
        ("constraint", constraints),
        ("reply", replies),
    ]:
        (out / target).mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(made()):
            (out / target / f"seed-{number:04}").write_bytes(content)
        (out / f"{target}.dict").write_text("".join(f'"{escaped(word)}"\n' for word in WORDS[target]))
