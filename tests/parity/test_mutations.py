"""The harness cannot be fooled: a checkpoint in which one thing is changed no longer equals the oracle of the unchanged one."""
import json
import shutil

import numpy
import pytest
from safetensors.numpy import load_file, save_file

import compare
import fixtures
from test_gpt2 import final_state, gpt2

CASE = gpt2("mutated", 5, 12, 8, n_inner=96)
INPUTS = fixtures.padded(fixtures.prompts(CASE, [5, 1, 17, 30]), "right")
LAST = "transformer.h.2."     # the last layer: what changes there has the least to show for it


def scaled(name, factor):
    return lambda tensors, _: tensors.update({name: tensors[name] * numpy.float32(factor)})


def rolled(name, axis):
    return lambda tensors, _: tensors.update({name: numpy.roll(tensors[name], 1, axis)})


def configured(**settings):
    return lambda _, config: config.update(settings)


def swap_query_and_key(tensors, _):
    for name in (LAST + "attn.c_attn.weight", LAST + "attn.c_attn.bias"):
        q, k, v = numpy.split(tensors[name], 3, axis=-1)
        tensors[name] = numpy.concatenate([k, q, v], axis=-1)


def swap_two_heads(tensors, _):
    """Of the rows of the attention's output matrix: heads 0 and 4 live on different ranks."""
    rows = tensors[LAST + "attn.c_proj.weight"].reshape(5, 12, -1)
    tensors[LAST + "attn.c_proj.weight"] = rows[[4, 1, 2, 3, 0]].reshape(60, -1)


def unit_gain(tensors, _):
    tensors[LAST + "ln_2.weight"] = numpy.ones_like(tensors[LAST + "ln_2.weight"])


def swap_two_words(tensors, _):
    first, second = INPUTS["input_ids"][2, 3], INPUTS["input_ids"][2, 4]
    tensors["transformer.wte.weight"][[first, second]] = tensors["transformer.wte.weight"][[second, first]]


MUTATIONS = {
    "drop the bias of q, k, v": scaled(LAST + "attn.c_attn.bias", 0),
    "drop the bias of the attention's output": scaled(LAST + "attn.c_proj.bias", 0),
    "drop the bias of the first MLP matrix": scaled(LAST + "mlp.c_fc.bias", 0),
    "drop the bias of the second MLP matrix": scaled(LAST + "mlp.c_proj.bias", 0),
    "drop the bias of a norm": scaled(LAST + "ln_1.bias", 0),
    "drop the gain of a norm": unit_gain,
    "add the row bias of the attention twice": scaled(LAST + "attn.c_proj.bias", 2),
    "add the row bias of the MLP twice": scaled(LAST + "mlp.c_proj.bias", 2),
    "drop the attention": scaled(LAST + "attn.c_proj.weight", 0),
    "drop the MLP": scaled(LAST + "mlp.c_proj.weight", 0),
    "drop the positions": scaled("transformer.wpe.weight", 0),
    "shift the positions by one": rolled("transformer.wpe.weight", 0),
    "shift the vocabulary by one": rolled("transformer.wte.weight", 0),
    "shift the FFN columns of one matrix by one": rolled(LAST + "mlp.c_fc.weight", 1),
    "swap queries and keys": swap_query_and_key,
    "swap two heads": swap_two_heads,
    "swap two words": swap_two_words,
    "swap the activation for the exact gelu": configured(activation_function="gelu"),
    "swap the activation for relu": configured(activation_function="relu"),
    "do not scale the scores": configured(scale_attn_weights=False),
    "scale the scores by the layer": configured(scale_attn_by_inverse_layer_idx=True),
    "another epsilon": configured(layer_norm_epsilon=1e-3),
    "other heads": configured(n_head=10),
}


def check(asked, folder, ranks):
    ours = asked.forward(folder, ranks, INPUTS)
    return compare.tensors(final_state(ours), fixtures.forward(CASE, INPUTS), INPUTS["attention_mask"], names=["logits"])


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_unchanged_model_passes(asked, ranks):
    assert check(asked, fixtures.checkpoint(CASE), ranks) <= compare.FP32


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_changed_model_fails(asked, tmp_path, mutation):
    shutil.copytree(fixtures.checkpoint(CASE), tmp_path, dirs_exist_ok=True)
    tensors, config = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    MUTATIONS[mutation](tensors, config)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(compare.Difference):
        check(asked, tmp_path, 2)


def test_changed_names_are_refused_rather_than_run(asked, tmp_path):
    shutil.copytree(fixtures.checkpoint(CASE), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["transformer.h.1.mlp.c_fc.bios"] = tensors.pop("transformer.h.1.mlp.c_fc.bias")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    answer = asked.batch.ask({"model": str(tmp_path), "ranks": 2, "generate": {"input_ids": [[1, 2]]}})
    assert not answer["ok"] and "h.1.mlp.c_fc.bi" in answer["error"], answer


class TestCompare:
    """The rules themselves."""
    good = {"logits": numpy.linspace(-1, 3, 24, dtype=numpy.float32).reshape(2, 3, 4)}

    def differs(self, change, mask=None):
        ours = {"logits": self.good["logits"].copy()}
        change(ours)
        with pytest.raises(compare.Difference):
            compare.tensors(ours, self.good, mask)

    def test_equal_tensors_are_equal(self):
        assert compare.tensors(self.good, self.good) == 0

    def test_one_value_is_enough_to_differ(self):
        self.differs(lambda ours: ours["logits"].__setitem__((1, 2, 3), 3 + 7e-5))

    def test_not_a_number_differs(self):
        self.differs(lambda ours: ours["logits"].__setitem__((0, 0, 0), numpy.nan))

    def test_a_missing_tensor_differs(self):
        self.differs(lambda ours: ours.clear())

    def test_another_shape_differs(self):
        self.differs(lambda ours: ours.update(logits=ours["logits"][:, :, :1]))

    def test_only_masked_places_are_left_out(self):
        mask = numpy.array([[1, 1, 0], [1, 1, 1]])
        ours = {"logits": self.good["logits"].copy()}
        ours["logits"][0, 2] = numpy.nan
        assert compare.tensors(ours, self.good, mask) == 0
        self.differs(lambda ours: ours["logits"].__setitem__((1, 2, 0), 9), mask)

    def test_greedy_steps_over_a_near_tie_with_the_oracles_token_and_over_nothing_else(self):
        oracle = {"sequence": [1, 2, 3, 4], "gaps": [0.5, 1e-5, 0.5]}
        answers = {1: [1, 2, 9, 9], 3: [1, 2, 3, 4]}
        assert compare.greedy(lambda prompt, count: answers[len(prompt)], [1], oracle) == 1
        answers[3] = [1, 2, 3, 5]
        with pytest.raises(compare.Difference):
            compare.greedy(lambda prompt, count: answers[len(prompt)], [1], oracle)

    def test_greedy_wants_the_end_where_the_oracle_ends(self):
        oracle = {"sequence": [1, 2, 3], "gaps": [0.5, 0.5]}
        for wrong in ([1, 2], [1, 2, 3, 4]):
            with pytest.raises(compare.Difference):
                compare.greedy(lambda prompt, count: wrong, [1], oracle)
