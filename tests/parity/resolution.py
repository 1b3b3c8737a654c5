# SPDX-License-Identifier: Apache-2.0
"""Policies resolved by the worker for a checkpoint, read from a tool of the tests; shared by the tests of policies."""

import functools
import json
import subprocess
import sys

import cases
import cases_experts
import cases_latent_attention
import cases_multimodal
import cases_prophetnet
import cases_quantized
import cases_recurrent
import oracle
import torch

import worker

sys.path.insert(0, str(worker.REPOSITORY / "tools"))
import families

TOOLS = worker.TOOLS
POLICIES = families.policies()
BY_NAME = cases.BY_NAME
# one case of each family for what needs a process of the real program, or many processes
OF_FAMILIES = list({case.model_type: case for case in reversed(cases.CASES)}.values())


# whose files have names or arrays of experts other than those of the modules
WITH_EXPERTS = (
    *cases_experts.MODEL_TYPES,
    *cases_latent_attention.MODEL_TYPES,
    *cases_multimodal.WITH_EXPERTS,
    *cases_recurrent.WITH_EXPERTS,
)

# what I-BERT's quant_mode computes from the weights and measures of states
QUANTIZED = ("_integer", "_scaling_factor", ".x_min", ".x_max", "LayerNorm.shift")


def unused_of_ibert(case):
    """What I-BERT's quant_mode computes from the weights, and the ranges and shifts that it does not read, or none
    reads."""
    ranges = (".x_min", ".x_max")
    if not cases_quantized.rounds(case):
        return lambda name: name.endswith(QUANTIZED)
    floats = case.settings.get("force_dequant")
    idle = ["embeddings_act2", "LayerNorm.activation"] + (["softmax.act"] if floats in ("softmax", "nonlinear") else [])
    shifts = ("LayerNorm.shift",) if floats in ("layernorm", "nonlinear") else ()
    return lambda name: name.endswith(
        ("_integer", "_scaling_factor", *shifts, *(part + end for part in idle for end in ranges))
    )


def unused(case):
    """Returns tensors that transformers saves and never uses: a second bias or table of an untied head,
    cross-attention without an encoder.
    """
    if case.model_type in (
        "wav2vec2",
        "hubert",
        "speech-encoder-decoder",
    ):  # of training: what stands for masked frames, the loss, a count
        return lambda name: name.endswith(("masked_spec_embed", "objective.weight", "num_batches_tracked"))
    if case.model_type in ("deberta", "deberta-v2") and (
        not case.settings["relative_attention"] or not case.settings["pos_att_type"]
    ):  # the table of relative positions and its norm, without a term that reads them
        return lambda name: name.endswith(
            ("rel_embeddings.weight", "encoder.LayerNorm.weight", "encoder.LayerNorm.bias")
        )
    if case.is_text_of_many:
        return cases_multimodal.is_unread(case.settings | {"model_type": case.model_type})
    if case.model_type in cases_latent_attention.MODEL_TYPES:
        return cases_latent_attention.ignored
    if case.model_type == "mobilebert":  # what attention does not read, a projection of embeddings that fit
        idle = [".bottleneck.attention."] if case.settings.get("use_bottleneck_attention") else []
        fits = not case.settings.get("trigram_input", True) and (
            case.settings["embedding_size"] == case.settings["hidden_size"]
        )
        idle += ["embedding_transformation."] if fits else []
        return lambda name: any(part in name for part in idle)
    if case.model_type == "lxmert":  # scores of regions, of use in a loss only
        return lambda name: name.startswith("obj_predict_head.")
    if case.model_type == "perceiver":  # a count of training
        return lambda name: name.endswith("num_batches_tracked")
    if case.model_type == "reformer":  # what transformers has beside the scores and does not add
        return lambda name: name == "lm_head.bias"
    if case.model_type == "ibert":
        return unused_of_ibert(case)
    if case.settings.get("position_embedding_type", "absolute") != "absolute" and case.model_type != "bert-generation":
        return lambda name: name.endswith("embeddings.position_embeddings.weight")
    if "encoder" in case.settings:  # the pooler, of which no output speaks, formulas, a second bias of an untied head
        untied = not case.settings["decoder"].get("tie_word_embeddings", True)
        relative = "position_embedding_type" in case.settings["decoder"]
        return lambda name: (
            name.startswith("encoder.pooler.")
            or (relative and name.endswith("embeddings.position_embeddings.weight"))
            or name.endswith("encoder.embed_positions.weight")
            or (untied and name == "decoder.lm_head.bias")
        )
    if case.model_type == "roformer":  # a formula
        return lambda name: name.endswith("encoder.embed_positions.weight")
    if case.name.startswith(("BertForMaskedLM", "MPNetForMaskedLM", "RobertaForMaskedLM")) and not case.settings.get(
        "tie_word_embeddings", True
    ):
        return lambda name: name in ("cls.predictions.bias", "lm_head.bias")
    if (
        case.model_class == "VisualBertForRegionToPhraseAlignment"
    ):  # heads of its training, and values of an attention whose scores alone are asked for
        return lambda name: name.startswith(("cls.", "attention.value."))
    if case.model_type in ("marian", "pegasus", "fsmt"):  # tables that are computed
        untied = not case.settings.get("tie_word_embeddings", True)
        return lambda name: (
            name.endswith("embed_positions.weight")
            or (case.model_class.endswith("ForCausalLM") and ".encoder_attn" in name)
            or (untied and name == "model.shared.weight")
        )
    if case.model_type in ("bart", "blenderbot-small", "led", "bigbird_pegasus") and not case.settings.get(
        "tie_word_embeddings", True
    ):
        return lambda name: name == "model.shared.weight"
    if case.model_type in cases_prophetnet.MODEL_TYPES:
        untied = not case.settings.get("tie_word_embeddings", True)  # then each stack has a table of its own
        return lambda name: (
            (cases_prophetnet.decodes_alone(case) and ".cross_attn" in name)
            or (untied and name == "prophetnet.word_embeddings.weight")
        )
    return lambda name: (
        case.kind == "encoder-decoder" and case.model_class.endswith("ForCausalLM") and ".encoder_attn" in name
    )


loaded = functools.cache(oracle.model)  # tiny, and asked for by test after test


def dump(folder, *more):
    return subprocess.run([TOOLS / "resolve_dump", folder, *more], capture_output=True, text=True, timeout=60)


def write_sparse(path, header, equal=()):
    """Writes a safetensors file of which the header and the first bytes of each tensor take place on the disk. Those
    differ, so that no tensor is taken for another that is stored twice, but for the names in `equal`."""
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for number, (name, tensor) in enumerate(header.items(), 1):
            begin, end = tensor["data_offsets"]
            file.seek(8 + len(text) + begin)
            file.write((0 if name in equal else number).to_bytes(4, "little")[: end - begin])
        file.truncate(8 + len(text) + max(tensor["data_offsets"][1] for tensor in header.values()))


@functools.cache
def resolved(folder):
    done = dump(folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def elements(shape):
    return torch.Size(shape).numel()


def part_bytes(metadata):
    """Returns the bytes of the rows of the metadata, whose keys are short and absent for default values. A row of
    several runs of layers lists [first, count] of each."""
    size = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8}

    def layers(part):
        runs = part.get("i", 0)
        return sum(count for _, count in runs) if isinstance(runs, list) else part.get("n", 1)

    return sum(p.get("u", 1) * p["e"] * layers(p) * size[p.get("t", metadata["dtype"])] for p in metadata["parts"])
