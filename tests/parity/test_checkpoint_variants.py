# SPDX-License-Identifier: Apache-2.0
"""Variants of checkpoints as they are published: keys of older configs, missing keys, missing or additional
prefixes, old spellings, other dtypes, heads that are saved twice, several files. Each resolves to the same model as
the one that transformers saves today.
"""

import json
import struct

import cases_gemma4
import cases_latent_attention
import cases_multimodal
import fixtures
import pytest
import torch
import transformers
from cases import CASES
from resolution import BY_NAME, OF_FAMILIES, POLICIES, QUANTIZED, WITH_EXPERTS, elements, loaded, resolved
from safetensors.torch import load_file, save_file
from transformers.core_model_loading import revert_weight_conversion

transformers.logging.set_verbosity_error()
ids = {"ids": lambda case: case.name}


def rewritten(case, folder, config=None, tensors=None):
    """The case's checkpoint with another config.json or other tensors."""
    origin = fixtures.checkpoint(case)
    settings = json.loads((origin / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config(settings) if config else settings))
    stored = load_file(origin / "model.safetensors")
    save_file(tensors(stored) if tensors else stored, folder / "model.safetensors", {"format": "pt"})
    return folder


def said_alike(one, other):
    """Whether two resolutions describe the same model, whatever its tensors are called."""

    def plain(value):
        if isinstance(value, list):
            return [plain(item) for item in value]
        return (
            {key: plain(item) for key, item in value.items() if key not in ("weight", "rope_theta")}
            if isinstance(value, dict)
            else value
        )

    one, other = (
        {key: plain(said[key]) for key in ("metadata", "stacks", "heads", "kind", "eos", "decoder_start")}
        for said in (one, other)
    )
    assert one == other
    return True


def renamed_keys(**names):
    return lambda settings: {names.get(key, key): value for key, value in settings.items()}


def rope_of_old(settings):
    """rope_parameters as before transformers 5: rope_theta, and rope_scaling with "type"."""
    rope = settings.pop("rope_parameters")
    settings["rope_theta"] = rope.pop("rope_theta")
    if rope["rope_type"] != "default":
        settings["rope_scaling"] = rope
    settings["torch_dtype"] = settings.pop("dtype")
    return settings


def flat_with_sections_of_positions(settings):
    """As the checkpoints of Qwen2.5-VL have it: the keys of the text beside those of the whole."""
    text = settings.pop("text_config")
    sections = text.pop("rope_parameters")
    rope = {"rope_theta": sections["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]}}
    return {**{key: value for key, value in text.items() if key != "model_type"}, **rope, **settings}


OLD_KEYS = {
    "GPT2LMHeadModel-all": renamed_keys(n_positions="n_ctx", dtype="torch_dtype"),
    "BloomForCausalLM-all": renamed_keys(
        hidden_size="n_embed", n_head="num_attention_heads", n_layer="num_hidden_layers"
    ),
    "FalconForCausalLM-40b": renamed_keys(
        num_attention_heads="n_head", num_hidden_layers="n_layer", num_kv_heads="n_head_kv", hidden_size="n_embed"
    ),
    "LlamaForCausalLM-all": rope_of_old,
    "LlamaForCausalLM-llama3-rope": rope_of_old,
    "T5ForConditionalGeneration-gated-untied": lambda s: (
        {k: v for k, v in s.items() if k not in ("scale_decoder_outputs", "is_gated_act", "dense_act_fn")}
        | {"tie_word_embeddings": False}
    ),
    "GPTNeoForCausalLM-all": lambda s: {k: v for k, v in s.items() if k != "attention_layers"},
    "T5ForConditionalGeneration-all": lambda s: s | {"architectures": ["T5WithLMHeadModel"]},
    "LlamaForCausalLM-one-kv-head-tied": lambda s: s | {"architectures": ["LLaMAForCausalLM"]},
    "Qwen2_5_VLForConditionalGeneration-all": flat_with_sections_of_positions,
    "CLIPModel-all": lambda s: s | {"text_config_dict": s["text_config"], "vision_config_dict": s["vision_config"]},
}


@pytest.mark.parametrize("name", OLD_KEYS)
def test_keys_of_older_configs_mean_the_same(tmp_path, name):
    case = BY_NAME[name]
    said = resolved(rewritten(case, tmp_path, OLD_KEYS[name]))
    assert said_alike(said, resolved(fixtures.checkpoint(case)))


@pytest.mark.parametrize("case", OF_FAMILIES, **ids)
def test_missing_keys_have_the_defaults_of_transformers(tmp_path, case):
    """Each key alone and all that have their default together may be left out of config.json."""
    kind = fixtures.library(case.config_class)
    usual = kind().to_dict()
    nested = ("text_config", "vision_config")

    def without(settings):
        kept = {
            key: value
            for key, value in settings.items()
            if key in (*nested, "model_type", "architectures") or usual.get(key, KeyError) != value
        }
        for part in nested:
            if part in kept:
                kept[part] = {
                    key: value
                    for key, value in kept[part].items()
                    if key == "model_type" or (usual[part] or {}).get(key, KeyError) != value
                }
        return kept

    said = resolved(rewritten(case, tmp_path, without))
    assert len(json.loads((tmp_path / "config.json").read_text())) < len(
        json.loads((fixtures.checkpoint(case) / "config.json").read_text())
    )
    assert said_alike(said, resolved(fixtures.checkpoint(case)))


def sparse(folder, shapes):
    """A checkpoint of these shapes in fp32 whose values take no room."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + 4 * elements(shape)]}
        offset += 4 * elements(shape)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


OF_TYPES = {
    kind: policy
    for policy in POLICIES.values()
    for kind in ([policy["model_type"]] if isinstance(policy["model_type"], str) else policy["model_type"])
}
TYPES = [
    kind
    for kind in OF_TYPES
    if kind not in ("retribert", "xlm-prophetnet", "transfo-xl", "rag", "kimi_k2")
    and not kind.endswith(("encoder-decoder", "vl_vision", "moe_vision", "3_5_vision", "pixtral"))
]  # which transformers had or has under another name; whose parts have no default; which are such parts alone


@pytest.mark.parametrize("model_type", TYPES)
def test_a_config_without_sizes_has_the_sizes_of_transformers(tmp_path, model_type):
    """Of an empty config.json every size is the class's default."""
    names = {
        "clip": "CLIPModel",
        "clip_text_model": "CLIPTextModel",
        "clip_vision_model": "CLIPVisionModel",
        "dpr": "DPRQuestionEncoder",
        "bert-generation": "BertGenerationEncoder",
        "fsmt": "FSMTForConditionalGeneration",
        "perceiver": "PerceiverForMaskedLM",
        "llama4": "Llama4ForConditionalGeneration",
        "llava_next": "LlavaNextModel",
        "siglip": "SiglipForImageClassification",
        "qwen2_vl": "Qwen2VLModel",
        "qwen2_5_vl_text": "Qwen2_5_VLTextModel",
        "qwen2_vl_text": "Qwen2VLTextModel",
        "qwen3_vl_text": "Qwen3VLTextModel",
        "qwen3_vl_moe_text": "Qwen3VLMoeTextModel",
        "qwen3_5_text": "Qwen3_5TextModel",
        "qwen3_5_moe_text": "Qwen3_5MoeTextModel",
    }
    name = names.get(model_type) or next(
        name for name in OF_TYPES[model_type]["architectures"] if name.endswith("Model") and "Head" not in name
    )
    # these classes cannot be built of their own defaults: they divide by a size that is None
    said = {
        "ministral": {"head_dim": 128},
        "nemotron": {"num_key_value_heads": 48},
        "hunyuan_v1_dense": {"head_dim": 128},
        "hunyuan_v1_moe": {"head_dim": 128},
        "lfm2_moe": {"layer_types": ["full_attention"] * 32},
    }.get(model_type, {})
    # nor can a file be without these: there is no number of experts, or half of a head is an odd number, or the
    # default of positions is a section
    needed = {
        "siglip_vision_model": {"vision_use_head": False},
        "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1},
        "glm4_moe": {"head_dim": 128},
        "deepseek_v2": {"num_experts_per_tok": 6},
        "mistral4": {"rope_parameters": {**cases_multimodal.YARN, "llama_4_scaling_beta": 0.1}},
        "gpt_oss": {"rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}},
        "gemma4": {"text_config": {"rope_parameters": cases_gemma4.TEXT["rope_parameters"]}},
        "gemma4_text": {"rope_parameters": cases_gemma4.TEXT["rope_parameters"]},
        "ministral3": {"rope_parameters": cases_multimodal.YARN},
        "apertus": {"rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}},
    }.get(model_type, {})
    if model_type == "detr":  # whose default is a ResNet of timm; that of transformers has its sizes
        said = {"use_timm_backbone": False}
    with torch.device("meta"):
        model = getattr(transformers, name)(transformers.AutoConfig.for_model(model_type, **said, **needed))
    seen, shapes = set(), {}
    stored = model.state_dict(keep_vars=True)
    # whose files have other names or arrays
    if model_type in ("nomic_bert", "gte", "jina_embeddings_v3", *WITH_EXPERTS):
        stored = revert_weight_conversion(model, stored)
    for key, value in stored.items():
        if id(value) not in seen:
            shapes[key] = value.shape
        seen.add(id(value))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, "architectures": [name], **needed}))
    sparse(tmp_path, shapes)
    sinusoids = (
        ("embed_positions.weight",) if model_type in ("roformer", "marian", "pegasus", "fsmt") else ()
    )  # are computed
    alike = {
        "fsmt": ("decoder.embed_tokens.weight", "decoder.output_projection.weight"),
        "llama4": ("lm_head.weight",),
    }.get(model_type, ())  # equal bytes are one tensor: here all are 0
    masks = ("masked_spec_embed",) if model_type in ("wav2vec2", "hubert") else ()  # of training
    integers = QUANTIZED if model_type == "ibert" else ()
    is_unread = cases_multimodal.is_unread({"model_type": model_type})  # of a config without a tower
    read = {
        key: shape
        for key, shape in shapes.items()
        if not key.endswith(sinusoids + alike + masks + integers)
        and not is_unread(key)
        and not (model_type == "siglip" and ".head." in key)  # which scores of classes do not read
        and not cases_latent_attention.ignored(f".{key}")
    }
    assert resolved(tmp_path)["metadata"]["parameters"] == sum(map(elements, read.values()))
    assert len(json.dumps(resolved(tmp_path)["metadata"], separators=(",", ":"))) <= 4096


OLD_SPELLINGS = [
    next(case for case in CASES if case.model_class == name)
    for name in ("BertForPreTraining", "AlbertForPreTraining", "MPNetForMaskedLM")
]


@pytest.mark.parametrize("case", OLD_SPELLINGS, **ids)
def test_gamma_and_beta_are_weight_and_bias_of_norms(tmp_path, case):
    def old(stored):
        return {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in stored.items()
        }

    assert any("gamma" in name for name in old(load_file(fixtures.checkpoint(case) / "model.safetensors")))
    assert said_alike(resolved(rewritten(case, tmp_path, tensors=old)), resolved(fixtures.checkpoint(case)))


PREFIXES = (
    "backbone.",
    "bert.",
    "albert.",
    "mpnet.",
    "roberta.",
    "electra.",
    "ibert.",
    "deberta.",
    "mobilebert.",
    "funnel.",
    "convbert.",
    "luke.",
    "distilbert.",
    "deit.",
    "roformer.",
    "layoutlm.",
    "tapas.",
    "visual_bert.",
    "gpt_neox.",
    "longformer.",
    "led.",
    "wav2vec2.",
    "hubert.",
    "transformer.",
    "prophetnet.",
    "perceiver.",
    "reformer.",
    "model.",
    "vit.",
    "nomic_bert.",
    "gte.",
)


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if case.name.endswith(("-all", "-7b"))
        and case.kind != "dual"
        and case.model_type not in ("dpr", "retribert", "siglip", *cases_multimodal.MODEL_TYPES)
    ],
    **ids,
)
def test_the_prefix_of_the_base_model_may_be_missing_or_there(tmp_path, case):
    names = load_file(fixtures.checkpoint(case) / "model.safetensors")
    prefix = next((p for p in PREFIXES if any(name.startswith(p) for name in names)), None)
    if prefix is None:
        family = {"t5": "", "mt5": "", "bart": "model."}.get(
            case.model_type, fixtures.library(case.model_class).base_model_prefix + "."
        )
        change = lambda stored: {family + name: tensor for name, tensor in stored.items()}
    else:
        change = lambda stored: {name.removeprefix(prefix): tensor for name, tensor in stored.items()}
    assert said_alike(resolved(rewritten(case, tmp_path, tensors=change)), resolved(fixtures.checkpoint(case)))


# what stands before the names of the text's tensors, as published and as transformers has it in memory
TEXT_PREFIXES = {
    "Gemma3ForConditionalGeneration-all": ("language_model.model.", "model.language_model."),
    "Mistral3ForConditionalGeneration-all": ("language_model.model.", "model.language_model."),
    "LlavaForConditionalGeneration-all": ("language_model.model.", "model.language_model."),
    "Qwen2_5_VLForConditionalGeneration-all": ("model.", "model.language_model."),
    "Gemma3Model-all": ("language_model.model.", "language_model."),
    "Gemma4Model-all": ("language_model.", "model.language_model."),
}


@pytest.mark.parametrize("name", TEXT_PREFIXES)
def test_the_text_of_a_checkpoint_of_images_has_any_of_its_prefixes(tmp_path, name):
    case, (old, new) = BY_NAME[name], TEXT_PREFIXES[name]

    def renamed(stored):
        found = {}
        for key, tensor in stored.items():
            towers = "" if key.startswith(("lm_head", "language_model.lm_head")) else "model."
            text = key.startswith(old)
            found[new + key.removeprefix(old) if text else towers + key.removeprefix("language_model.")] = tensor
        return found

    said = resolved(rewritten(case, tmp_path, tensors=renamed))
    assert said_alike(said, resolved(fixtures.checkpoint(case)))


@pytest.mark.parametrize("type_", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", OF_FAMILIES, **ids)
def test_sixteen_bit_checkpoints_are_half_as_large(tmp_path, case, type_):
    said = resolved(
        rewritten(case, tmp_path, tensors=lambda stored: {name: tensor.to(type_) for name, tensor in stored.items()})
    )
    before = resolved(fixtures.checkpoint(case))
    assert (
        said["metadata"]["bytes"] * 2 == before["metadata"]["bytes"]
        and said["metadata"]["parameters"] == before["metadata"]["parameters"]
    )
    assert said["metadata"]["dtype"] == {torch.float16: "F16", torch.bfloat16: "BF16"}[type_]
    kept = {p["path"] for p in said["params"] if p["keep"]}
    assert kept == (
        {p["path"] for p in said["params"] if p["role"] == "down weight"}
        if case.model_type in ("t5", "mt5") and type_ == torch.float16
        else set()
    )


def test_half_precision_t5_keeps_its_down_projections_in_fp32(tmp_path):
    case = BY_NAME["T5ForConditionalGeneration-all"]
    rewritten(case, tmp_path, tensors=lambda stored: {name: tensor.half() for name, tensor in stored.items()})
    model = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float16)
    kept = {p["tensor"] for p in resolved(tmp_path)["params"] if p["keep"]}
    assert kept == {name for name, p in model.named_parameters() if p.dtype == torch.float32}


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize(
    "name, table",
    [
        ("GPT2LMHeadModel-all", "transformer.wte.weight"),
        ("LlamaForCausalLM-one-kv-head-tied", "model.embed_tokens.weight"),
        ("BartForConditionalGeneration-all", "model.shared.weight"),
        ("BloomForCausalLM-all", "transformer.word_embeddings.weight"),
    ],
)
def test_a_head_that_is_saved_too_is_shared_by_its_bytes(tmp_path, name, table, equal):
    case = BY_NAME[name]
    rewritten(
        case,
        tmp_path,
        tensors=lambda stored: stored | {"lm_head.weight": stored[table].clone() if equal else stored[table] + 1},
    )
    said = resolved(tmp_path)
    head = next(p for p in said["params"] if p["path"] == "heads.lm.logits.weight")
    assert bool(head["shares"]) == equal
    model = getattr(transformers, case.model_class).from_pretrained(tmp_path)
    assert torch.equal(model.lm_head.weight, model.get_input_embeddings().weight) == equal
    assert said["metadata"]["parameters"] == sum(
        {p.data_ptr(): p.numel() for p in model.state_dict().values()}.values()
    )


@pytest.mark.parametrize("case", [case for case in OF_FAMILIES if case.model_type != "internlm3"], **ids)
def test_a_sharded_checkpoint_resolves_like_a_single_file(tmp_path, case):
    loaded(case).save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    assert said_alike(resolved(tmp_path), resolved(fixtures.checkpoint(case)))
