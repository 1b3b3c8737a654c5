# SPDX-License-Identifier: Apache-2.0
"""Policies against transformers: every tensor is read, bytes are exact, fused matrices are split as in its modules,
options of layers equal those of its modules, and outputs have its names.
"""

import importlib
import json
import re

import cases_audio
import cases_composites
import cases_detection
import cases_encoders
import cases_entities
import cases_latent_attention
import cases_latents
import cases_memory
import cases_multimodal
import cases_neighbors
import cases_pooled
import cases_prophetnet
import cases_recurrent
import cases_relative
import cases_sparse
import cases_streams
import fixtures
import inputs
import oracle
import pytest
import rag_models
import torch
import transformers
from cases import CASES
from resolution import BY_NAME, OF_FAMILIES, POLICIES, dump, elements, loaded, part_bytes, resolved, unused
from safetensors.torch import load_file, save_file

import worker

transformers.logging.set_verbosity_error()
ids = {"ids": lambda case: case.name}


@pytest.mark.parametrize("case", CASES, **ids)
def test_every_tensor_is_read_and_bytes_are_exact(case):
    folder = fixtures.checkpoint(case)
    said = resolved(folder)
    stored = load_file(folder / "model.safetensors")
    taken = {}
    for param in said["params"]:
        if not param["shares"]:
            taken[param["tensor"]] = taken.get(param["tensor"], 0) + elements(param["shape"])
    left = {name for name in stored if unused(case)(name)}
    assert set(said["not_loaded"]) == left
    assert taken == {name: tensor.numel() for name, tensor in stored.items() if name not in left}
    assert said["metadata"]["parameters"] == sum(taken.values())
    assert (
        said["metadata"]["bytes"]
        == part_bytes(said["metadata"])
        == sum(tensor.nbytes for name, tensor in stored.items() if name not in left)
    )
    assert said["metadata"]["architecture"] == case.model_class
    assert len(json.dumps(said["metadata"], separators=(",", ":"))) <= 4096
    storages = {
        p.data_ptr(): p.numel()
        for name, p in loaded(case).state_dict().items()
        if name in stored or not name.endswith("embed_positions.weight")
    }
    assert sum(storages.values()) == sum(
        tensor.numel() for tensor in stored.values()
    )  # what transformers holds, it saves


TOWERS = {
    "pixtral_vision": {"PixtralVisionModel"},
    "qwen2_vl_vision": {"Qwen2VisionTransformerPretrainedModel"},
    "qwen2_5_vl_vision": {"Qwen2_5_VisionTransformerPretrainedModel"},
    "qwen3_vl_vision": {"Qwen3VLVisionModel", "Qwen3VLMoeVisionModel", "Qwen3_5VisionModel", "Qwen3_5MoeVisionModel"},
}


def classes_of(family):
    """The classes of a family that transformers can load a checkpoint into."""
    if family in TOWERS:  # of which each is a part of a model of another family
        return TOWERS[family]
    if family == "retribert":  # transformers had it
        return {"RetriBertModel"}
    if family == "transfo_xl":  # likewise
        return {"TransfoXLModel", "TransfoXLLMHeadModel", "TransfoXLForSequenceClassification"}
    if family == "xlm_prophetnet":  # likewise
        return {name.replace("ProphetNet", "XLMProphetNet") for name in classes_of("prophetnet")}
    # a source file of the server is called openai; the text of a model that reads images has no folder of its own, and
    # some policies are of several
    folders = {
        "openai_gpt": ["openai"],
        "gemma3_text": ["gemma3"],
        "gemma4_text": ["gemma4"],
        "internlm3": ["llama"],
        "llama4_text": ["llama4"],
        "qwen2_vl": ["qwen2_vl", "qwen2_5_vl"],
    }.get(family, [family])
    modules = [importlib.import_module(f"transformers.models.{folder}.modeling_{folder}") for folder in folders]
    pairs = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "llama4": "llama4_text"}
    other = (pairs | {text: whole for whole, text in pairs.items()}).get(family)  # its classes are in the same modules
    elsewhere = POLICIES[other]["architectures"] if other else {}
    found = {name: getattr(module, name) for module in modules for name in module.__all__ if name not in elsewhere}
    found = {
        name: kind
        for name, kind in found.items()
        if issubclass(kind, transformers.PreTrainedModel) and "__init__" in vars(kind) or "Generic" in str(kind.__mro__)
    }
    return {name for name in found if not re.search("Pre[tT]rained", name)}


@pytest.mark.parametrize("family", POLICIES)
def test_every_class_of_transformers_is_served_and_tested_or_refused_by_name(family):
    architectures = {name: row for name, row in POLICIES[family]["architectures"].items() if "alias_of" not in row}
    assert classes_of(family) == set(architectures)
    served = {name for name, row in architectures.items() if not isinstance(row.get("refuse"), str)}
    cases = rag_models.CASES if family == "rag" else CASES
    assert served == {case.model_class for case in cases if case.model_class in architectures}


@pytest.mark.parametrize(
    "family, name",
    [
        (family, name)
        for family, policy in POLICIES.items()
        for name, row in policy["architectures"].items()
        if isinstance(row.get("refuse"), str)
    ],
)
def test_classes_that_are_not_served_are_refused_with_a_sentence(tmp_path, family, name):
    types = POLICIES[family]["model_type"]
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": types if isinstance(types, str) else types[0], "architectures": [name]})
    )
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    done = dump(tmp_path)
    assert done.returncode != 0
    assert (
        done.stderr.startswith(f"UnknownArchitecture: {name} is not served: ")
        and f"policies/{family}.yaml:" in done.stderr
    )


@pytest.mark.parametrize("case", OF_FAMILIES[::6], **ids)  # a program each, and nothing of it depends on the family
def test_inspect_prints_the_same_metadata(case):
    done = worker.run("inspect", "--model", fixtures.checkpoint(case), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == resolved(fixtures.checkpoint(case))["metadata"]


def brought(param, stored):
    """The parameter put together from its pieces, [out, in] or [out]."""
    tensor = stored[param["tensor"]]
    matrix = tensor.reshape(1, -1) if tensor.dim() < 2 else tensor
    parts = [matrix[row : row + rows, col : col + cols] for row, rows, col, cols in param["pieces"]]
    if tensor.dim() < 2:
        return torch.cat(parts, 1)[0]
    return torch.cat(parts, 1).T if param["conv1d"] else torch.cat(parts, 0)


def projections(case, layer):
    """Weights and biases of query, key and value of a decoder's layer, from the pieces of the fused tensors."""
    folder = fixtures.checkpoint(case)
    stored, said = load_file(folder / "model.safetensors"), resolved(folder)
    found = {}
    for name in ("query", "key", "value"):
        found[name] = {
            p["path"].rsplit(".", 1)[1]: brought(p, stored)
            for p in said["params"]
            if p["path"].startswith(f"decoder.layers.{layer}.attn.{name}.")
        }
    return found


@pytest.mark.parametrize("case", [case for case in CASES if case.model_type in ("falcon", "bloom", "gpt2")], **ids)
def test_fused_projections_come_apart_as_transformers_attention_splits_them(case):
    model = loaded(case)
    block = model.base_model.h[0]
    width = model.config.hidden_size
    x = torch.randn(1, 3, width)
    with torch.no_grad():
        if case.model_type == "gpt2":
            heads = block.attn.num_heads
            wanted = [part.reshape(1, 3, heads, -1) for part in block.attn.c_attn(x).split(width, 2)]
        elif case.model_type == "bloom":
            wanted = [
                part.transpose(1, 2) for part in block.self_attention._reshape(block.self_attention.query_key_value(x))
            ]
        else:
            wanted = block.self_attention._split_heads(block.self_attention.query_key_value(x))
    for theirs, ours in zip(wanted, projections(case, 0).values()):
        y = torch.nn.functional.linear(x, ours["weight"], ours.get("bias")).reshape(1, 3, -1, theirs.shape[3])
        repeat = theirs.shape[2] // y.shape[2]  # transformers repeats the keys of Falcon's new decoder for its heads
        assert torch.allclose(y.repeat_interleave(repeat, 2), theirs, atol=1e-4)


def blocks(case, model):
    """transformers' layers in the order in which they run, by the name of our stack."""
    base = model.base_model
    if "encoder" in case.settings:
        return {name: cases_composites.blocks(getattr(model, name)) for name in ("encoder", "decoder")}
    if case.model_type in cases_streams.MODEL_TYPES:
        return cases_streams.blocks(base)
    if case.model_type in cases_encoders.MODEL_TYPES:
        return {
            "reader" if case.model_class == "DPRReader" else cases_encoders.stack(case): cases_encoders.blocks(base)
        }
    if case.model_type in cases_audio.MODEL_TYPES:
        return cases_audio.blocks(model)
    if case.model_type in cases_detection.MODEL_TYPES:
        return cases_detection.blocks(model)
    plain = ("bert", "mpnet", "bert-generation", *cases_entities.ENCODERS)
    if case.model_type in (*plain, *cases_sparse.ENCODERS, *cases_relative.ENCODERS, *cases_neighbors.ENCODERS):
        return {"encoder": list(base.encoder.layer)}
    if case.model_type in cases_memory.MODEL_TYPES:
        return {"encoder": list(base.layers)}
    if case.model_type == "xlnet":
        return {"encoder": list(base.layer)}
    if case.model_type in cases_pooled.MODEL_TYPES:
        return cases_pooled.blocks(case, base)
    if case.model_type in cases_latents.MODEL_TYPES:
        return cases_latents.blocks(case, model)
    if case.model_type == "reformer":
        return {"encoder": list(base.encoder.layers)}
    if case.model_type == "albert":
        groups, config = base.encoder.albert_layer_groups, base.config
        order = [
            int(l / (config.num_hidden_layers / config.num_hidden_groups)) for l in range(config.num_hidden_layers)
        ]
        return {"encoder": [layer for group in order for layer in groups[group].albert_layers]}
    if cases_prophetnet.encodes_alone(case) or case.model_class.endswith("ProphetNetDecoder"):
        return {"encoder" if cases_prophetnet.encodes_alone(case) else "decoder": list(base.layers)}
    if case.kind == "encoder-decoder":
        inner = getattr(base, "transformer", base)
        return {
            name: list(getattr(stack, "block" if case.model_type in ("t5", "mt5") else "layers"))
            for name in ("encoder", "decoder")
            if (stack := getattr(inner, name, None)) is not None
        }
    if case.kind == "dual":
        towers = {"text": "CLIPTextModel", "vision": "CLIPVisionModel"}
        found = {name: [m for m in model.modules() if type(m).__name__ == kind] for name, kind in towers.items()}
        return {name: list(modules[0].encoder.layers) for name, modules in found.items() if modules}
    if case.model_type == "vit":
        return {"vision": list(base.layers)}
    if case.model_type.startswith("siglip"):
        return {"vision": list(getattr(base, "vision_model", base).encoder.layers)}
    found = cases_multimodal.tower(case, base)
    if case.is_text_of_many:
        base = getattr(base, "language_model", base)
    if case.model_type.startswith("llama4"):  # whose classes say of another part that it is the base
        base = getattr(base, "model", base)
    inner = getattr(base, "transformer", getattr(base, "decoder", base))
    return found | {"decoder": list(first_of(inner, "layers", "h", "blocks"))}


def first_of(module, *names):
    """The first of the attributes (dotted) that the module has."""
    for name in names:
        found = module
        for part in name.split("."):
            found = getattr(found, part, None) if not part.isdigit() else dict(enumerate(found)).get(int(part))
            if found is None:
                break
        if found is not None:
            return found
    raise AttributeError(f"{type(module).__name__} has none of {names}")


ATTENTION = (
    "attention.self",
    "attention.attn",
    "attention.self_attention",
    "attn.attention",
    "attn",
    "self_attn",
    "self_attention",
    "layer.0.SelfAttention",
    "multi_head_attention",
    "rel_attn",
    "lang_self_att.self",
    "dec_attn",
    "attention",
)
FEED_FORWARD = (
    "intermediate.intermediate_act_fn",
    "activation",
    "mlp.act",
    "ffn.act",
    "mlp.activation_fn",
    "mlp.act_fn",
    "feed_forward.act_fn",
    "mlp.experts.act_fn",
    "feed_forward.experts.act_fn",
    "shared_mlp.activation",
    "block_sparse_moe.experts.act_fn",
    "mlp.gelu_impl",
    "layer.2.DenseReluDense.act",
    "layer.1.DenseReluDense.act",
    "activation_fn",
    "mlp.activation_fn",
    "ffn.activation_function",
    "ffn.activation",
    "ffn.act",
    "ffn.1",
    "pos_ff.CoreNet.1",
    "feed_forward.intermediate_act_fn",
    "intermediate.act",
    "ff.activation_function",
    "feed_forward.activation_fn",
    "feed_forward.dense.act_fn",
    "lang_inter.intermediate_act_fn",
    "mlp.intermediate_act_fn",
)
OURS = {
    "gelu": torch.nn.functional.gelu,
    "gelu_new": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x).square(),
    "silu": torch.nn.functional.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "tanh": torch.tanh,
}


def norms(case, block):
    unread = ("encoder_attn", "cross_attn") if case.model_class.endswith(("ForCausalLM", "ProphetNetDecoder")) else "."
    if case.model_type in cases_latent_attention.MODEL_TYPES:  # an index that selects all tokens
        unread = "self_attn.indexer"
    if case.settings.get("use_bottleneck_attention"):  # attention reads the states to which blocks add
        unread = "bottleneck.attention"
    return [
        module
        for path, module in block.named_modules()
        if path
        and "Norm" in type(module).__name__
        # SqueezeBERT's linear and its norm are a "Norm" together; OLMo's norms have no parameters
        and (hasattr(module, "weight") or case.model_type == "olmo")
        and not path.startswith(unread)
    ]


def kind_of_norm(norm):
    """The kind of a module of transformers as policies call it, and its epsilon."""
    name = type(norm).__name__
    if name == "OlmoLayerNorm":
        return "layer", 1e-5
    kind = "rms" if "RMS" in name or "T5LayerNorm" in name else "affine" if name == "NoNorm" else "layer"
    return kind, getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", None)


@pytest.mark.parametrize("case", CASES, **ids)
def test_options_of_layers_are_those_of_transformers_modules(case):
    model, said = loaded(case), resolved(fixtures.checkpoint(case))
    theirs = blocks(case, model)
    assert set(said["stacks"]) == set(theirs)
    x = torch.linspace(-4, 4, 101)
    for name, modules in theirs.items():
        stack = said["stacks"][name]
        assert len(stack["layers"]) == len(modules)
        for ours, block in zip(stack["layers"], modules):
            attention = ours["attention"]
            if "recurrent" in ours:
                norm = ours["recurrent"].get("norm", {}).get("weight", "")
                assert (
                    norm.endswith((".linear_attn.norm.weight", ".mamba.norm.weight", ".mixer.norm.weight")) or not norm
                )
                assert ours["recurrent"] == cases_recurrent.recurrent(block, norm)
                continue
            if case.model_type == "nemotron_h":  # whose layers are one block each
                assert ours["has_mixer"] == (block.block_type == "full_attention")
                assert ours["has_mlp"] == (block.block_type in ("mlp", "moe"))
                assert not ours["has_mlp"] or ours["activation"] == "relu2"
                eps = block.norm.variance_epsilon
                assert (ours["mlp_norm"] or attention["norm"]).items() >= {"kind": "rms", "eps": eps}.items()
                continue
            if case.model_type in ("t5", "mt5"):
                block = torch.nn.ModuleDict({"layer": block.layer})
            module = first_of(block, *ATTENTION) if case.model_type not in ("albert", "vit") else block.attention
            own = ("num_attn_heads", "num_attention_heads", "num_heads", "n_heads", "n_head")
            heads = (
                first_of(module, *own)
                if any(hasattr(module, name) for name in own)
                else cases_detection.heads(module)
                if case.model_type in cases_detection.MODEL_TYPES
                else getattr(model.config, "text_config", model.config).num_attention_heads
            )
            assert attention["heads"] == heads
            scale = next(
                (
                    getattr(module, key)
                    for key in ("scaling", "scale", "softmax_scale", "inv_norm_factor")
                    if isinstance(getattr(module, key, None), float)
                ),
                None,
            )
            scale = {"t5": 1.0, "mt5": 1.0, "gpt_neo": 1.0}.get(case.model_type, scale)
            if case.model_type == "gpt2":
                scale = (module.head_dim**-0.5 if module.scale_attn_weights else 1) / (
                    module.layer_idx + 1 if module.scale_attn_by_inverse_layer_idx else 1
                )
            if scale is not None:
                assert attention["scale"] == pytest.approx(scale), name
            # gpt-oss and LFM2 have theirs written out, and xIELU has parameters
            written = {"gpt_oss": "quick_gelu", "apertus": "relu", "lfm2": "silu", "lfm2_moe": "silu"}.get(
                case.model_type
            )
            act = OURS[written] if written else first_of(block, *FEED_FORWARD)
            # I-BERT's takes and gives a scale, and is a polynomial of integers with quant_mode
            given = act(x, torch.full((1,), 1e-3))[0] if case.model_type == "ibert" else act(x)
            allowed = 0.03 if getattr(act, "quant_mode", False) else 1e-5
            assert torch.allclose(OURS[ours["activation"]](x), given, atol=allowed), ours["activation"]
            kinds, parts = {kind_of_norm(n) for n in norms(case, block)}, ["", "post_"]
            if case.model_type.startswith("llama4"):  # whose norms of heads have no weight
                assert bool(attention["query_norm"]) == bool(attention["key_norm"]) == hasattr(module, "qk_norm")
            else:
                parts += ["query_", "key_"]
            mine = [
                *(attention[f"{name}norm"] for name in parts),
                ours["mlp_norm"],
                ours["mlp_post_norm"],
                ours.get("cross", {}).get("norm"),
                *ours["more_norms"],
            ]
            assert {
                (n["kind"].removeprefix("gemma_").removesuffix("1p"), None if n["kind"] == "affine" else n["eps"])
                for n in mine
                if n
            } == kinds
            assert sum(n is not None for n in mine) == len(norms(case, block))
            assert (attention["mask"] == "causal") == (
                (
                    name in ("decoder", "text")
                    and case.model_type not in (*cases_detection.MODEL_TYPES, *cases_latents.MODEL_TYPES)
                    and not getattr(model.config, "use_bidirectional_attention", False)
                )
                or case.model_type in cases_memory.MODEL_TYPES
                or any(bool(model.config.to_dict().get(key)) for key in ("is_decoder", "causal"))
                or model.config.to_dict().get("attn_type") == "uni"
            )
    assert said["kind"] == kind_of(case)


def kind_of(case):
    """Returns the kind of model of a class, by its computation."""
    if (
        case.kind == "encoder-decoder"
        and case.model_class.endswith(("EncoderModel", "TokenClassification", "NetEncoder"))
        or case.model_class.startswith("CLIPText")
    ):
        return "encoder"
    if (
        case.kind == "encoder-decoder"
        and case.model_class.endswith(("ForCausalLM", "NetDecoder"))
        or case.model_class == "BertGenerationDecoder"
        or (case.kind == "encoder" and case.generates and not case.recomputes)
    ):
        return "decoder"
    return (
        "vision"
        if case.model_class.startswith("CLIPVision") or case.model_class == "CLIPForImageClassification"
        else case.kind
    )


def configured(model_class, **settings):
    """The first case of the class with these settings."""
    return next(case for case in CASES if case.model_class == model_class and settings.items() <= case.settings.items())


def layers(name, stack="decoder"):
    return resolved(fixtures.checkpoint(BY_NAME[name]))["stacks"][stack]["layers"]


def test_options_that_only_some_families_have():
    neo = loaded(BY_NAME["GPTNeoForCausalLM-all"])
    wanted = [neo.config.window_size if block.attn.attention_type == "local" else 0 for block in neo.transformer.h]
    assert [layer["attention"]["window"] for layer in layers("GPTNeoForCausalLM-all")] == wanted and len(
        set(wanted)
    ) == 2

    t5 = loaded(BY_NAME["T5ForConditionalGeneration-all"]).config
    buckets = [t5.relative_attention_num_buckets, t5.relative_attention_max_distance]
    assert layers("T5ForConditionalGeneration-all", "encoder")[1]["attention"]["buckets"] == [*buckets, True]
    assert layers("T5ForConditionalGeneration-all")[2]["attention"]["buckets"] == [*buckets, False]
    assert "buckets" not in layers("T5ForConditionalGeneration-all")[0]["cross"]
    said = resolved(fixtures.checkpoint(BY_NAME["T5ForConditionalGeneration-all"]))
    shared = [p["shares"] for p in said["params"] if p["role"] == "relative position bias"]
    assert shared == [
        "",
        "encoder.layers.0.attn.relative_position_bias",
        "",
        *["decoder.layers.0.attn.relative_position_bias"] * 2,
    ]
    assert said["heads"]["lm"]["scale_input"] == pytest.approx(t5.d_model**-0.5) and said["decoder_start"] == 0
    untied = resolved(fixtures.checkpoint(BY_NAME["T5ForConditionalGeneration-gated-untied"]))
    assert untied["heads"]["lm"]["scale_input"] == 1 and untied["stacks"]["decoder"]["layers"][0]["gated"]

    for name, rotary in [
        ("LlamaForCausalLM-one-kv-head-tied", {"style": "neox", "dims": 10}),
        ("GPTJForCausalLM-all", {"style": "interleaved", "dims": 4}),
        ("LlamaForCausalLM-llama3-rope", {"style": "neox", "dims": 12, "theta": 500.0}),
    ]:
        assert rotary.items() <= layers(name)[0]["attention"]["rotary"].items(), name
    assert layers("LlamaForCausalLM-llama3-rope")[0]["attention"]["rotary"]["scaling"]["rope_type"] == "llama3"
    assert layers("LlamaForCausalLM-one-kv-head-tied")[0]["attention"]["kv_heads"] == 1

    for name, order, alibi, two in [
        ("FalconForCausalLM-7b", "parallel", False, False),
        ("FalconForCausalLM-rw", "pre", True, True),
        ("FalconForCausalLM-40b", "parallel", False, True),
        ("FalconForCausalLM-11b-untied-bias", "parallel", False, False),
    ]:
        layer = layers(name)[0]
        assert (layer["order"], layer["attention"].get("alibi"), layer["mlp_norm"] is not None) == (
            order,
            {"scaled": True, "bf16": True} if alibi else None,
            two,
        ), name
        assert ("rotary" in layer["attention"]) != alibi
    assert layers("BloomForCausalLM-all")[0]["attention"]["alibi"] == {"scaled": False, "bf16": False}
    assert [layers(f"BloomForCausalLM-{label}")[0]["residual_normed"] for label in ("all", "residual-after-norm")] == [
        False,
        True,
    ]


def test_inputs_poolers_and_last_states_are_described_as_transformers_computes_them():
    def stack(name, which):
        return resolved(fixtures.checkpoint(BY_NAME[name]))["stacks"][which]

    mpnet = stack("MPNetModel-all", "encoder")
    assert mpnet["input"]["skip_padding"] and mpnet["input"]["offset"] == 2 and mpnet["positions"] == 78
    bart = resolved(fixtures.checkpoint(configured("BartModel", scale_embedding=True)))
    for which in ("encoder", "decoder"):
        assert bart["stacks"][which]["input"]["offset"] == 2 and bart["stacks"][which]["input"][
            "scale"
        ] == pytest.approx(30**0.5)
    assert bart["decoder_start"] == 2 and bart["eos"] == [2]
    assert stack("BertModel-all", "encoder")["pooler"] == {
        "pool": "first",
        "norm": None,
        "dense": True,
        "activation": "tanh",
    }
    assert "pooler" not in stack("BertForMaskedLM-all", "encoder") and stack("BertModel-all", "encoder")["input"][
        "tables"
    ] == ["token_type_ids"]
    clip = resolved(fixtures.checkpoint(BY_NAME["CLIPModel-end-by-its-id-gelu"]))
    assert clip["eos"] == [150] and clip["heads"]["similarity"]["between"] == ["text", "vision"]
    text, vision = (clip["stacks"][name] for name in ("text", "vision"))
    assert text["raw_states"] and vision["raw_states"] and text["output_norm"] and not vision["output_norm"]
    assert text["pooler"]["pool"] == "eot" and vision["pooler"]["norm"]["weight"].endswith("post_layernorm.weight")
    assert stack("ViTModel-all", "vision")["raw_states"] and stack("ViTModel-all", "vision")["pooler"]["dense"]
    assert not stack("GPT2Model-all", "decoder")["raw_states"]


STATES = re.compile(
    r"past_key_values|hidden_states(_ngram)?\.|attentions\.|last_hidden_state(_ngram)?$|pooler_output$|_model_output\."
    r"|extract_features$|language_output$|vision_output$|pooled_output$"
)


@pytest.mark.parametrize("case", CASES, **ids)
def test_heads_put_out_what_transformers_puts_out(case):
    said = resolved(fixtures.checkpoint(case))
    theirs = set(oracle.forward(case, inputs.make(case, inputs.kinds(case)[0])))
    ours = {name for head in said["heads"].values() for name in head["outputs"]}
    if case.settings.get("ngram") == 1:  # there are no further streams to put out
        ours -= {"logits_ngram"}
    if case.model_class == "FSMTModel":  # which calls its scores the last state
        assert ours == {"last_hidden_state"} <= theirs
        return
    assert ours == {name for name in theirs if not STATES.search(name)}
    if "pooler_output" in theirs:
        assert all("pooler" in stack for stack in said["stacks"].values())


@pytest.mark.parametrize("case", [case for case in CASES if case.model_type == "albert"], **ids)
def test_albert_runs_its_groups_as_transformers_does(case):
    said, model = resolved(fixtures.checkpoint(case)), loaded(case)
    paths = {id(module): path for path, module in model.named_modules()}
    assert [p["tensor"] for p in said["params"] if p["role"] == "up weight"] == [
        f"{paths[id(layer)]}.ffn.weight" for layer in blocks(case, model)["encoder"]
    ]
