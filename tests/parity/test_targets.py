# SPDX-License-Identifier: Apache-2.0
"""Two-stream attention: tokens that are to be predicted (target_mapping), and which tokens see which (perm_mask)."""

import contextlib
import json
import shutil

import compare
import fixtures
import inputs
import mutations as m
import numpy
import oracle
import pytest
from cases import BY_NAME
from server import Server, forward_body
from test_generate import check_answer, rows_of
from test_mutations import stored

LM = "XLNetLMHeadModel-all"
CAUSAL = "XLNetLMHeadModel-causal"
REMEMBERING = ["XLNetLMHeadModel-memories", "XLNetLMHeadModel-short-memory", "XLNetLMHeadModel-causal-memory"]
BASE = "XLNetModel-light"


def asked(case, kind, targets=3, hidden=True):
    """Inputs of this kind with targets in any order among the tokens, and tokens of a random permutation that see those
    before them in it."""
    given = inputs.make(case, kind)
    random = numpy.random.default_rng(case.seed + 5)
    mask = given.get("attention_mask", numpy.ones(given["input_ids"].shape, numpy.int64))
    enough = mask.sum(1) > targets
    given, mask = {name: values[enough] for name, values in given.items()}, mask[enough]
    rows, length = mask.shape
    if hidden:
        order = numpy.stack([random.permutation(length) for _ in range(rows)])
        given["perm_mask"] = (order[:, :, None] <= order[:, None, :]).astype(numpy.float32)
    if targets:
        places = [random.choice(numpy.flatnonzero(row), targets, replace=False) for row in mask]
        mapping = numpy.zeros((rows, targets, length), numpy.float32)
        for row, chosen in enumerate(places):
            mapping[row, numpy.arange(targets), chosen] = 1
            if hidden:  # a target sees at least one token that is no padding
                for place in chosen:
                    given["perm_mask"][row, place, next(i for i in numpy.flatnonzero(mask[row]) if i != place)] = 0
        given["target_mapping"] = mapping
    return given, mask


def check(runner, case, ranks, kind, sizes="", **options):
    given, mask = asked(case, kind, **options)
    theirs = oracle.forward(case, given)
    ours = runner.forward(fixtures.checkpoint(case), ranks, given, **({"sizes": sizes} if sizes else {}))
    names = [
        name for name in theirs if not (name.startswith("attentions") and name[len("attentions.") :].endswith(".1"))
    ]
    assert set(ours) == set(names)
    two = "target_mapping" in given

    def places(name):
        if name.startswith("hidden_states") and two and int(name.split(".")[1]) % 2:
            return None  # of targets, which are no padding
        return None if two and name in ("logits", "last_hidden_state") else mask

    return compare.tensors(ours, theirs, places, names=names)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["right", "left", "bare"])
@pytest.mark.parametrize("name", [LM, BASE])
@pytest.mark.parametrize("hidden", [True, False])
def test_targets_equal_those_of_transformers(runner, name, kind, ranks, hidden):
    assert check(runner, BY_NAME[name], ranks, kind, hidden=hidden) <= compare.FP32


@pytest.mark.parametrize("ranks", [1, 2])
def test_targets_of_causal_attention_equal_those_of_transformers(runner, ranks):
    """Which has no masks there for several rows."""
    assert check(runner, BY_NAME[CAUSAL], ranks, "bare", hidden=False) <= compare.FP32
    case = BY_NAME[CAUSAL]
    given, mask = asked(case, "bare")
    for row in range(2):
        one = {name: values[row : row + 1] for name, values in given.items()}
        theirs = oracle.forward(case, one)
        compare.tensors(runner.forward(fixtures.checkpoint(case), ranks, one), theirs, names=["logits"])


@pytest.mark.parametrize("kind", ["right", "left", "bare"])
def test_tokens_see_those_that_are_not_hidden_from_them(runner, kind):
    assert check(runner, BY_NAME[LM], 2, kind, targets=0) <= compare.FP32


@pytest.mark.parametrize("sizes", ["pipeline=2", "tensor=2,pipeline=2"])
def test_stages_of_a_pipeline_hand_targets_on(runner, sizes):
    assert check(runner, BY_NAME[LM], 4 if "," in sizes else 2, "right", sizes=sizes) <= compare.FP32


def test_a_target_that_sees_no_token_weighs_all_alike(runner):
    """So do those of transformers, where no token is padding."""
    case = BY_NAME[LM]
    given, _ = asked(case, "bare")
    given["perm_mask"][:, given["target_mapping"][0, 0].argmax()] = 1
    theirs = oracle.forward(case, given)
    compare.tensors(runner.forward(fixtures.checkpoint(case), 2, given), theirs, names=["logits"])


MUTANTS = {
    "a target begins as a token": m.dropped(r"mask_emb"),
    "no target": m.policy("      target: true\n      overlap: remembers\n", ""),
    "a token appended": m.policy("      target: true\n      overlap: remembers\n", "      append: 0\n"),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_a_changed_step_says_other_tokens(runner, tmp_path, what):
    from safetensors.numpy import save_file

    case, model = BY_NAME[LM], stored(BY_NAME[LM])
    folder = shutil.copytree(fixtures.checkpoint(case), tmp_path / "model")
    MUTANTS[what](model)
    save_file(model.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "policy.yaml").write_text(model.policy)
    with pytest.raises(compare.Difference):
        for row in rows_of(case):
            check_answer(runner, case, folder, 2, row, policy=str(folder / "policy.yaml"))


def written(case, tmp_path, remove=(), **settings):
    """A folder with the case's checkpoint and another config.json."""
    folder = shutil.copytree(fixtures.checkpoint(case), tmp_path / "model")
    config = {**json.loads((folder / "config.json").read_text()), **settings}
    (folder / "config.json").write_text(json.dumps({name: config[name] for name in config if name not in remove}))
    return folder


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("ranks, sizes", [(3, "tensor=3"), (2, "pipeline=2"), (2, "data=2")])
def test_answers_read_the_memories_of_earlier_steps(runner, name, ranks, sizes):
    """As generate does by default: tokens of earlier steps have not seen those behind them."""
    case = BY_NAME[name]
    rows = rows_of(case)
    together = runner.generate(fixtures.checkpoint(case), ranks, rows, max_new_tokens=24, do_sample=False, sizes=sizes)
    assert together == [oracle.greedy(case, row, 24)["sequence"] for row in rows]
    if "causal" not in name:
        assert together != [oracle.greedy(case, row, 24, use_mems=False)["sequence"] for row in rows]


@pytest.mark.parametrize("name", REMEMBERING[:2])  # transformers' causal attention takes no beams
def test_beams_read_memories_of_their_own(runner, name):
    case = BY_NAME[name]
    options, compared = {"num_beams": 3, "num_return_sequences": 2}, 0
    for row in inputs.prompts(case, [9, 14, 30], seed=31):
        wanted = oracle.beams(case, row, 12, **options)
        if wanted["gap"] < compare.NEAR_TIE:
            continue
        compared += 1
        answer = runner.batch.run(
            {
                "model": str(fixtures.checkpoint(case)),
                "ranks": 2,
                "generate": {"input_ids": [row], "max_new_tokens": 12, **options},
            }
        )
        assert answer["sequences"] == wanted["sequences"]
        assert answer["scores"] == pytest.approx(wanted["scores"], rel=1e-4, abs=1e-4)
    assert compared >= 2


@pytest.mark.parametrize(
    "settings, remove, wanted",
    [
        ({"use_mems_eval": False}, (), {"use_mems": False}),
        ({}, ("use_mems_eval",), {}),
        ({"mem_len": 0}, (), {}),
    ],
    ids=["without memories", "by default", "a length of 0, which means all"],
)
def test_config_json_says_whether_there_are_memories(runner, tmp_path, settings, remove, wanted):
    case = BY_NAME[REMEMBERING[0]]
    folder, row = written(case, tmp_path, remove, **settings), rows_of(case)[0]
    found = runner.generate(folder, 2, [row], max_new_tokens=24, do_sample=False)[0]
    assert found == oracle.greedy(case, row, 24, **wanted)["sequence"]


def test_a_config_json_without_a_length_of_memories_means_512(runner, tmp_path):
    """One with null means all."""
    case = BY_NAME[REMEMBERING[0]]
    row = inputs.prompts(case, [700], seed=8)[0]
    folders = [
        written(case, tmp_path / "absent", ("mem_len",)),
        written(case, tmp_path / "explicit", mem_len=512),
        fixtures.checkpoint(case),
    ]
    requested = {"input_ids": [row], "max_new_tokens": 8, "num_beams": 2}
    absent, explicit, null = (
        runner.batch.run({"model": str(folder), "ranks": 2, "generate": requested})["scores"] for folder in folders
    )
    assert absent == explicit
    assert absent != pytest.approx(null, rel=1e-6)
    assert null == pytest.approx(oracle.beams(case, row, 8, num_beams=2)["scores"], rel=1e-4)


def test_a_length_that_cuts_prompts_does_not_generate(tmp_path):
    case = BY_NAME[REMEMBERING[0]]
    with contextlib.closing(Server(written(case, tmp_path, reuse_len=4), 1)) as running:
        assert "POST /generate" not in running.get("/").json()["routes"]
    with contextlib.closing(Server(written(case, tmp_path / "off", reuse_len=4, use_mems_eval=False), 1)) as running:
        assert "POST /generate" in running.get("/").json()["routes"]


@pytest.mark.parametrize("what", ["hidden", "mapping"])
def test_other_masks_give_other_scores(runner, what):
    """Else equal scores would prove little."""
    case = BY_NAME[LM]
    given, _ = asked(case, "bare")
    before = runner.forward(fixtures.checkpoint(case), 2, given)["logits"]
    if what == "hidden":
        given["perm_mask"] = numpy.zeros_like(given["perm_mask"])
    else:
        given["target_mapping"] = numpy.roll(given["target_mapping"], 1, 2)
    assert numpy.abs(runner.forward(fixtures.checkpoint(case), 2, given)["logits"] - before).max() > 1e-2


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(fixtures.checkpoint(BY_NAME[LM]), folder)
    with contextlib.closing(Server(folder, 2, "tensor=2")) as running:
        yield running


def test_requests_over_http(server):
    case = BY_NAME[LM]
    given, _ = asked(case, "right")
    answer = server.ask("/forward", forward_body(given))["outputs"]
    ours = numpy.array(answer["logits"]["data"], numpy.float32)
    compare.tensors({"logits": ours}, {"logits": oracle.forward(case, given)["logits"]})
    row = inputs.prompts(case, [9], seed=4)[0]
    wanted = oracle.greedy(case, row, 12)["sequence"]
    text = server.ask(
        "/generate", {"input_ids": row, "max_new_tokens": 12, "do_sample": False, "return_token_ids": True}
    )
    assert text["sequence"] == wanted
    assert "POST /v1/embeddings" not in server.get("/").json()["routes"]


def test_what_is_no_target_is_refused(server):
    case = BY_NAME[LM]
    given, mask = asked(case, "right")
    padding = numpy.argwhere(mask == 0)[0]
    two, fractions, outside, alone, twice = (json.loads(json.dumps(forward_body(given))) for _ in range(5))
    twice["inputs"]["target_mapping"][0][1] = twice["inputs"]["target_mapping"][0][0]
    two["inputs"]["target_mapping"][0][0] = [1] * mask.shape[1]
    fractions["inputs"]["perm_mask"][0][0][0] = 0.5
    outside["inputs"]["target_mapping"][padding[0]][0] = [int(i == padding[1]) for i in range(mask.shape[1])]
    place = int(given["target_mapping"][padding[0], 0].argmax())
    alone["inputs"]["perm_mask"][padding[0]][place] = [1] * mask.shape[1]
    short = forward_body({**given, "perm_mask": given["perm_mask"][:, :-1]})
    for body, said in (
        (two, "target_mapping has a target without one 1"),
        (twice, "target_mapping has two targets at one position"),
        (fractions, "perm_mask has values other than 0 and 1"),
        (outside, "target_mapping has a target that is padding"),
        (alone, "has a target that sees no token"),
        (short, "perm_mask has the shape"),
    ):
        assert said in server.refused("/forward", body, 400)["message"], said
