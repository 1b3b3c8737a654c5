"""GPT-2 on 1, 2, 3 and 4 ranks says what transformers says: every layer's hidden states, every head's attention, logits, greedy tokens."""
import json

import pytest
from safetensors.numpy import load_file, save_file

import compare
import fixtures
import worker


def gpt2(name, heads, head_dim, seed, model_class="GPT2LMHeadModel", dtype="float32", **settings):
    settings = {"vocab_size": 211, "n_positions": 80, "n_layer": 3, "n_head": heads, "n_embd": heads * head_dim, "bos_token_id": 0, "eos_token_id": 210,
                "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, **settings}
    return fixtures.Case(name, model_class, "GPT2Config", tuple(sorted(settings.items())), seed, dtype)


CASES = [
    gpt2("plain", 4, 16, 1),
    gpt2("inverse-layer-scale", 5, 13, 2, n_inner=77, scale_attn_by_inverse_layer_idx=True, vocab_size=307, eos_token_id=306),
    gpt2("untied-gelu", 7, 9, 3, n_inner=101, activation_function="gelu", tie_word_embeddings=False, layer_norm_epsilon=1e-3),
    gpt2("model-only", 5, 12, 4, model_class="GPT2Model", scale_attn_weights=False, activation_function="relu", n_inner=67),
    gpt2("one-layer-wide", 7, 16, 5, n_layer=1, n_inner=640, activation_function="gelu_pytorch_tanh"),
]
GENERATING = [case for case in CASES if case.model_class == "GPT2LMHeadModel"]
RANKS = [1, 2, 3, 4]
LENGTHS = [5, 1, 16, 17, 40]    # inside a block of 16, on its edge, over it


def by_name(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def final_state(outputs):
    """`last_hidden_state` beside the others, where a language model gives it only as the last hidden state."""
    states = [name for name in outputs if name.startswith("hidden_states.")]
    return {"last_hidden_state": outputs[max(states, key=lambda name: int(name.split(".")[1]))], **outputs}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("side", ["right", "left"])
@by_name(CASES)
def test_forward_of_a_padded_batch_equals_transformers(asked, case, side, ranks):
    inputs = fixtures.padded(fixtures.prompts(case, LENGTHS), side)
    ours = asked.forward(fixtures.checkpoint(case), ranks, inputs)
    theirs = fixtures.forward(case, inputs)
    layers = case.settings["n_layer"]
    assert {name for name in theirs if name.startswith("hidden_states.")} == {f"hidden_states.{i}" for i in range(layers + 1)}
    assert {name for name in theirs if name.startswith("attentions.")} == {f"attentions.{i}" for i in range(layers)}
    compare.tensors(final_state(ours), theirs, inputs["attention_mask"])


@pytest.mark.parametrize("ranks", [1, 3])
@by_name(CASES[:2])
def test_forward_follows_given_positions(asked, case, ranks):
    inputs = fixtures.padded(fixtures.prompts(case, [9, 9], seed=1), "right")
    inputs["position_ids"] = (inputs["input_ids"] * 7 + 11) % case.settings["n_positions"]
    compare.tensors(final_state(asked.forward(fixtures.checkpoint(case), ranks, inputs)), fixtures.forward(case, inputs))


@pytest.mark.parametrize("ranks", RANKS)
@by_name(GENERATING)
def test_greedy_tokens_of_prompts_side_by_side_equal_transformers_row_by_row(asked, case, ranks):
    folder, rows, count = fixtures.checkpoint(case), fixtures.prompts(case, LENGTHS, seed=2), 24
    together = asked.generate(folder, ranks, rows, max_new_tokens=count, do_sample=False)
    assert len(together) == len(rows)
    for row, answer in zip(rows, together):
        oracle = fixtures.greedy(case, row, count)
        first = [answer]    # the batched answer is judged first; only after a near-tie is the row asked again alone
        compare.greedy(lambda prompt, left: first.pop() if first else asked.generate(folder, ranks, [prompt], max_new_tokens=left, do_sample=False)[0],
                       row, oracle)


@by_name(GENERATING[:2])
def test_drawn_tokens_depend_on_the_seed_and_on_nothing_else(asked, case):
    """The same seed draws the same tokens on any number of ranks, alone and beside others; another seed draws others."""
    folder, rows = fixtures.checkpoint(case), fixtures.prompts(case, [5, 17, 9], seed=5)
    drawn = {"max_new_tokens": 16, "ignore_eos": True, "do_sample": True, "temperature": 0.9, "top_k": 50, "top_p": 0.95}
    alone = [asked.generate(folder, 1, [row], seed=7, **drawn)[0] for row in rows]
    for ranks in RANKS:
        assert asked.generate(folder, ranks, rows, seed=7, **drawn) == alone
    assert asked.generate(folder, 2, rows, seed=8, **drawn) != alone


def test_greedy_answers_differ_from_prompt_to_prompt():
    """Else equal tokens would prove little."""
    for case in GENERATING:
        answers = [tuple(fixtures.greedy(case, row, 24)["sequence"][len(row):]) for row in fixtures.prompts(case, LENGTHS, seed=2)]
        assert len(set(answers)) == len(answers), case.name
        assert len({token for answer in answers for token in answer}) > 20, case.name


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_error_is_within_that_of_transformers(asked, dtype, ranks):
    case = gpt2(f"stored-{dtype}", 5, 13, 6, dtype=dtype)
    inputs = fixtures.padded(fixtures.prompts(case, LENGTHS), "right")
    theirs32 = fixtures.forward(case, inputs)
    ours = asked.forward(fixtures.checkpoint(case), ranks, inputs)
    names = ["logits"] + [f"hidden_states.{i}" for i in range(1, 4)]
    compare.sixteen_bit(ours, fixtures.forward(case, inputs, dtype), theirs32, inputs["attention_mask"], names)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_as_processes_over_shared_memory_equal_transformers(tmp_path, ranks):
    case = CASES[1]
    inputs = fixtures.padded(fixtures.prompts(case, LENGTHS), "right")
    save_file(inputs, tmp_path / "in.safetensors")
    done = worker.run("forward", "--model", fixtures.checkpoint(case), "--ranks", ranks, "--processes", "--inputs", tmp_path / "in.safetensors",
                      "--outputs", tmp_path / "out.safetensors", "--hidden-states", "--attentions")
    assert done.returncode == 0, done.stderr
    compare.tensors(load_file(tmp_path / "out.safetensors"), fixtures.forward(case, inputs), inputs["attention_mask"])


def test_generate_prints_the_ids_that_transformers_returns():
    case = CASES[0]
    row = fixtures.prompts(case, [12], seed=3)[0]
    done = worker.run("generate", "--model", fixtures.checkpoint(case), "--ranks", 2, "--input-ids", ",".join(map(str, row)), "--max-new-tokens", 10, "--json")
    assert done.returncode == 0, done.stderr
    oracle = fixtures.greedy(case, row, 10)
    assert min(oracle["gaps"]) > compare.NEAR_TIE, "choose another seed"
    assert json.loads(done.stdout)["sequences"] == [oracle["sequence"]]


def test_more_ranks_than_heads_are_refused_and_the_next_job_is_served(asked):
    case = CASES[0]
    inputs = fixtures.padded(fixtures.prompts(case, [4]), "right")
    answer = asked.batch.ask({"model": str(fixtures.checkpoint(case)), "ranks": 5, "inputs": "unused", "outputs": "unused"})
    assert not answer["ok"] and "4 attention heads" in answer["error"], answer
    compare.tensors(final_state(asked.forward(fixtures.checkpoint(case), 4, inputs)), fixtures.forward(case, inputs))
