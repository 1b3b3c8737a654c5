# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the parity harness: a model with one change no longer equals the oracle of the original."""

import json
import shutil

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
import yaml
from cases import BY_NAME
from mutations import FILES, MUTATIONS, POLICIES, Model, policy_of
from safetensors.numpy import load_file, save_file
from test_forward import places
from test_generate import check_answer, rows_of

RANKS = 2
CASES = sorted({mutation.case.name for mutation in MUTATIONS})

# what a policy says that is no option: which tensors there are and what they are called (one that is left over or
# missing is refused), and sizes that the shapes of tensors prove
NAMES = {
    "at",
    "from",
    "learned",
    "bias",
    "tie",
    "when",
    "optional",
    "prefix",
    "like",
    "let",
    "kind",
    "layers",
    "rows",
    "stack",
}
SIZES = {
    "hidden",
    "embedding",
    "ffn",
    "vocab",
    "positions",
    "patches.size",
    "patches.image",
    "patches.channels",
    "patches.frames",
    "patches.merge",
    "axes.count",  # another number of axes is refused
    "images.tower",  # another tower reads other tensors
    "projector.norm_merged",
    "projector.merge",
    "patches.sizes",
    "deepstack.norm_merged",
    "relative_position_bias.layer",
    "relative_position_bias.num_buckets",
    "content_buckets.num_buckets",
    "relative_content.span",
    "content_to_position.shared",  # another choice reads other tensors
    "position_to_content.shared",
    "delta_net.key_heads",
    "delta_net.value_heads",
    "delta_net.key_dim",
    "delta_net.value_dim",
    "delta_net.taps",
    "short_convolution.taps",
    "state_space.heads",
    "state_space.head_dim",
    "state_space.state_size",
    "state_space.taps",
    "latent.rank",
    "stacked.gate_up",  # other tensors of the same experts: test_experts.py
    "stacked.down",
    "experts.count",
    "experts.width",
    "shared.width",
    "convolutions.bins",
    "convolutions.bins_first",  # other shapes of the input are refused
    "convolutions.exact_length",
    "convolutions.channels",
    "convolutions.size",
    "convolution.size",
    "convolution.groups",
    "convolution_branch.size",
    "input.norm_projected",  # the width of the norm tells it
    "input.project_tokens",  # likewise
    "bottleneck.width",
    "axial.width",
    "axial.columns",
    "stacked_mlp.count",
    "concat.layout",
    "span_convolution.size",
    "entities.width",
    "entities.position_rows",
    "up.layout",  # a stack of blocks has other dimensions
    "down.layout",
    "convolution_branch.groups",
    "time_delay.channels",
    "time_delay.size",
    "codebook.groups",
    "codebook.size",
    "codebook.width",
    "backbone.channels",
    "backbone.stages",
    "backbone.blocks",
    "stem.channels",
    "stem.size",
    "block.convolutions",
    "block.channels",
    "block.size",
    "queries.count",
    "latents.count",
    "latent_queries.count",
    "latent_queries.width",
    "attn.value_dim",
    "attn.head_dim",
    "mlp.width",
    "per_layer_inputs.width",
    "pixels.channels",
    "pixels.image",
    "positions.width",
    "fourier.bands",
    "convolution.channels",
    "position.grid",  # another choice reads other tensors
    "clusters.ends",
    "clusters.divisor",
    "score_clusters.ends",
    "score_clusters.divisor",
    "masks.heads",  # the channels of the first convolution tell it
}
GENERATED = {"tables.generation_row", "input.targets"}  # which no such forward pass shows: test_recompute.py and
# test_targets.py
DRAFTS = {"mtp"}  # a module that changes no answer: test_mtp.py changes its tensors, and compares its drafts
STORED = {"keep_in_fp32"}  # the dtype that a tensor is held in: test_resolve.py
REQUESTS = {
    "features.input",
    "input.token_types",
    "features.mask",
    "features.align",
    "pairs.positions",
    "entities.input",
    "entities.mask",
    "entities.mentions",
    "vectors.mask",
    "memory.input",
    "convolutions.input",
    "convolutions.features",
    "segments.input",
    "compose.reads",  # an encoder that reads something else is refused
    "backbone.mask",
    "pixels.input",
    "images.token",  # and another number of rows, too
    "images.skip",
    "rotary.axes",  # without them no mm_token_type_ids
    "images.bidirectional",  # another choice takes no token_type_ids
    "images.placeholder",  # how servers spell images: test_prompt_images.py
    "images.before",
    "images.begin",
    "images.end",
    "images.row_ends",
    "images.after",
    "projector.pool",
    "first.layout",
    "targets.mapping",
    "targets.hidden",
}  # what requests call their tensors: another name is refused


def final(names):
    return sorted(
        name
        for name in names
        if "hidden_states." not in name and "attentions." not in name and not name.startswith("encoder_last")
    )


def check(runner, case, folder, kind="", names=(), **options):
    given = inputs.make(case, kind or inputs.kinds(case)[0])
    theirs = oracle.forward(case, given)
    return compare.tensors(
        runner.forward(folder, RANKS, given, attentions=case.shows_attentions, **options),
        theirs,
        places(case, given),
        names=names or final(theirs),
    )


def stored(case):
    folder = fixtures.checkpoint(case)
    return Model(
        load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text()), policy_of(case)
    )


def write(folder, mutation):
    """The changed checkpoint and its policy."""
    model = stored(mutation.case)
    mutation.change(model)
    shutil.copytree(fixtures.checkpoint(mutation.case), folder, dirs_exist_ok=True)
    save_file(model.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config))
    (folder / "policy.yaml").write_text(model.policy)
    return folder, str(folder / "policy.yaml")


@pytest.mark.parametrize("name", CASES)
def test_the_unchanged_model_passes_also_by_a_policy_of_the_users(runner, tmp_path, name):
    case = BY_NAME[name]
    (tmp_path / "policy.yaml").write_text(policy_of(case))
    assert check(runner, case, fixtures.checkpoint(case), policy=str(tmp_path / "policy.yaml")) <= compare.FP32


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_a_changed_model_fails(runner, tmp_path, mutation):
    folder, policy = write(tmp_path, mutation)
    with pytest.raises(compare.Difference):  # a refusal is no difference
        check(runner, mutation.case, folder, mutation.kind, mutation.names, policy=policy)


# of those that generate, some that every word shows
SPOKEN = [
    mutation
    for mutation in MUTATIONS
    if mutation.case.generates
    and "layer" not in mutation.option
    and mutation.option != "segments.query_bias"  # in an answer all tokens are in one segment
    and mutation.what
    in (
        "shifted by one",
        "attention dropped",
        "of the decoder dropped",
        "of others",
        "dropped",
        "two heads change places",
        "off",
        "interleaved",
    )
]


@pytest.mark.parametrize("mutation", SPOKEN, ids=lambda mutation: mutation.id)
def test_a_changed_model_says_other_tokens(runner, tmp_path, mutation):
    folder, policy = write(tmp_path, mutation)
    with pytest.raises(compare.Difference):
        for row in rows_of(mutation.case):
            check_answer(runner, mutation.case, folder, RANKS, row, policy=policy)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_each_mutation_changes_the_model(mutation):
    """Else its difference would prove nothing."""
    model, before = stored(mutation.case), stored(mutation.case)
    mutation.change(model)
    same = [numpy.array_equal(model.tensors[name], tensor) for name, tensor in before.tensors.items()]
    assert not all(same) or model.config != before.config or model.policy != before.policy
    assert set(model.tensors) == set(before.tensors) and all(
        model.tensors[name].shape == tensor.shape for name, tensor in before.tensors.items()
    )


def options_of(node, path=()):
    """Every option that a section of a policy gives, as the mutations call it: "section.option"."""
    found = set()
    for key, value in node.items():
        option = ".".join((*path, key)[-2:])
        if key in NAMES | DRAFTS or option in SIZES | REQUESTS or key in SIZES | STORED:
            continue
        if option in GENERATED or value is None:
            continue
        if path:  # a stack's own keys are sections, and sizes
            found.add(option)
        if isinstance(value, dict):
            found |= options_of(value, (*path, key))
    return found


def test_every_option_of_the_policies_has_a_mutation():
    used = set()
    for case in {mutation.case.model_type: mutation.case for mutation in MUTATIONS}.values():
        document = yaml.load(policy_of(case), yaml.CSafeLoader)
        for stack in document.get("stacks", {}).values():
            used |= options_of(stack)
        used |= options_of({name: document[name] for name in ("compose", "images") if name in document})
        for head in document.get("heads", {}).values():
            used |= options_of(head or {}, ("head",))
    for path in towers():
        for stack in yaml.load(path.read_text(), yaml.CSafeLoader)["stacks"].values():
            used |= options_of(stack)
    assert sorted(used - {mutation.option for mutation in MUTATIONS}) == []


def towers():
    """Policies of what is a part of models of other families alone."""
    return POLICIES.glob("*_vision.yaml")


def test_every_family_has_mutations():
    files = {path.stem for path in POLICIES.glob("*.yaml")} - {path.stem for path in towers()}
    files -= {"rag"}  # whose options test_rag.py changes
    assert files <= {FILES[mutation.case.model_type] for mutation in MUTATIONS}


def test_changed_names_are_refused_rather_than_run(runner, tmp_path):
    case = BY_NAME["GPT2LMHeadModel-all"]
    shutil.copytree(fixtures.checkpoint(case), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["transformer.h.1.mlp.c_fc.bios"] = tensors.pop("transformer.h.1.mlp.c_fc.bias")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    answer = runner.batch.ask({"model": str(tmp_path), "ranks": 2, "generate": {"input_ids": [[1, 2]]}})
    assert not answer["ok"] and "h.1.mlp.c_fc.bi" in answer["error"], answer
