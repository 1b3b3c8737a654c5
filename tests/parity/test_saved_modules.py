# SPDX-License-Identifier: Apache-2.0
"""Adapters of PEFT with modules_to_save: heads and tables of tokens that they have whole, in place of the base model's.
PEFT makes and saves them, and its answers are the expected ones.
"""

import concurrent.futures
import functools
import json
import re
import shutil

import compare
import fixtures
import inputs
import numpy
import oracle
import peft
import pytest
import torch
from cases import BY_NAME
from safetensors.numpy import load_file, save_file
from server import Server
from test_codes import quantized_case
from test_forward import places
from test_strategies import ranks_of

import worker

COUNT = 24  # tokens of an answer
LLAMA = "LlamaForCausalLM-all"
SEQUENCES, TOKENS = ({"task_type": name} for name in ("SEQ_CLS", "TOKEN_CLS"))
# for these tasks PEFT names the head itself
CLASSIFIERS = {
    "LlamaForSequenceClassification-all": {"target_modules": ["q_proj", "down_proj"], **SEQUENCES},
    "LlamaForTokenClassification-all": {"target_modules": ["v_proj"], **TOKENS},
    "GPT2ForSequenceClassification-all": {"target_modules": ["c_attn"], "fan_in_fan_out": True, **SEQUENCES},
    "BertForSequenceClassification-all": {"target_modules": ["query", "value"], **SEQUENCES},
    "BertForTokenClassification-all": {"target_modules": ["query"], **TOKENS},
    # PEFT's class for this task does not hand token_type_ids on
    "BertForQuestionAnswering-all": {"target_modules": ["query"], "modules_to_save": ["qa_outputs"]},
    # a dense layer and scores, in one module and in two of which one's name ends in the other's
    "RobertaForSequenceClassification-light": {"target_modules": ["query"], **SEQUENCES},
    "ElectraForSequenceClassification-light": {"target_modules": ["query"], **SEQUENCES},
    "DistilBertForSequenceClassification-light": {"target_modules": ["q_lin"], **SEQUENCES},
}
# heads that have rows of their own, that are tied to the table of tokens, and that have a bias
HEADS = {
    LLAMA: {"target_modules": ["q_proj", "up_proj"], "modules_to_save": ["lm_head"]},
    "Gemma2ForCausalLM-all": {"target_modules": ["v_proj"], "modules_to_save": ["lm_head"]},
    "GPT2LMHeadModel-all": {"target_modules": ["c_attn"], "fan_in_fan_out": True, "modules_to_save": ["lm_head"]},
    "GPTJForCausalLM-all": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
}
PLAIN = {"target_modules": HEADS[LLAMA]["target_modules"]}
# tables of tokens, with and without the head, which is tied to them or is not
TABLES = {
    "table": (LLAMA, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    "both": (LLAMA, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]}),
    "of-tied": ("Gemma2ForCausalLM-all", {"target_modules": ["v_proj"], "modules_to_save": ["embed_tokens"]}),
    "both-of-tied": (
        "GPT2LMHeadModel-all",
        {"target_modules": ["c_attn"], "fan_in_fan_out": True, "modules_to_save": ["lm_head", "wte"]},
    ),
    "tied": (
        "Gemma2ForCausalLM-all",
        {"target_modules": ["v_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    ),
    "of-an-encoder": (
        "BertForSequenceClassification-all",
        {"target_modules": ["query"], "modules_to_save": ["word_embeddings"], **SEQUENCES},
    ),
}
GENERATING = [name for name, (case, _) in TABLES.items() if BY_NAME[case].generates]
ALL = {**{name: (name, options) for name, options in {**CLASSIFIERS, **HEADS}.items()}, **TABLES}


def adapted(case, options, seed=1):
    """The folder of an adapter whose factors and whole modules are random."""
    options = json.loads(json.dumps(options))  # PEFT changes the lists

    def make(folder):
        torch.manual_seed(seed)
        base = fixtures.library(case.model_class).from_pretrained(fixtures.checkpoint(case))
        made = peft.get_peft_model(base, peft.LoraConfig(r=3, lora_alpha=5, **options))
        for name, parameter in made.named_parameters():
            if "lora_" in name:  # B is zero at the beginning
                parameter.data.copy_(torch.randn(parameter.shape) / parameter.shape[1] ** 0.5)
            elif "modules_to_save" in name:
                scale = parameter.data.std() if parameter.numel() > 1 else 1
                parameter.data.copy_(torch.randn(parameter.shape) * scale)
        made.save_pretrained(folder)

    return fixtures.cached("saved-modules", case, [json.dumps(options), seed, peft.__version__], make)


@functools.lru_cache(8)
def theirs(case, folder):
    """PEFT's model, which reads what it has saved."""
    base = fixtures.library(case.model_class).from_pretrained(fixtures.checkpoint(case), attn_implementation="eager")
    return peft.PeftModel.from_pretrained(base, folder).eval()


def states(case, folder, given):
    with torch.no_grad():
        answer = theirs(case, folder)(
            **{name: torch.from_numpy(array) for name, array in given.items()},
            output_hidden_states=True,
            **({"use_cache": False} if case.generates else {}),
        )
    return {name: tensor.numpy() for name, tensor in oracle.flat(answer).items()}


def check_states(runner, case, options, ranks, base=None, **others):
    given, folder = inputs.make(case, "right"), adapted(case, options)
    ours = runner.forward(fixtures.checkpoint(case), ranks, given, adapters=[str(folder)], **others)
    compare.tensors(ours, states(base or case, folder, given), places(case, given))


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", ALL)
def test_states_are_those_of_peft(runner, name, ranks):
    case, options = BY_NAME[ALL[name][0]], ALL[name][1]
    if ranks in case.ranks:
        check_states(runner, case, options, ranks)


@pytest.mark.parametrize("name", ALL)
def test_the_saved_modules_matter(name):
    """Else equal states would prove little: the adapter with the base model's modules has others."""
    case = BY_NAME[ALL[name][0]]
    given, folder = inputs.make(case, "right"), adapted(case, ALL[name][1])
    with_all = states(case, folder, given)
    model = theirs(case, folder)
    saved = [module for module in model.modules() if isinstance(module, peft.utils.ModulesToSaveWrapper)]
    for module in saved:
        module.enable_adapters(False)
    try:
        with pytest.raises(compare.Difference):
            compare.tensors(states(case, folder, given), with_all, places(case, given))
    finally:
        for module in saved:
            module.enable_adapters(True)


def greedy(case, folder, prompt):
    """As oracle.greedy(), by PEFT; of the base model where there is no adapter."""
    if folder is None:
        return oracle.greedy(case, prompt, COUNT)

    def make(made):
        ids = torch.tensor([prompt])
        result = theirs(case, folder).generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=COUNT,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=0,
        )
        best = [step[0].topk(2).values for step in result.logits]
        gaps = [((two[0] - two[1]) / step[0].std()).item() for two, step in zip(best, result.logits, strict=True)]
        (made / "greedy.json").write_text(json.dumps({"sequence": result.sequences[0].tolist(), "gaps": gaps}))

    key = [prompt, COUNT, folder.name, peft.__version__]
    return json.loads((fixtures.cached("saved-greedy", case, key, make) / "greedy.json").read_text())


def check_batch(runner, case, ranks, rows, folders, base=None, **options):
    """Compares the answers to rows of one batch, each with its adapter, with PEFT's to each alone."""
    job = {"model": str(fixtures.checkpoint(case)), "ranks": ranks, "sizes": f"tensor={ranks}", **options}

    def generate(prompts, adapters, count):
        own = [str(folder or "") for folder in adapters]
        generate = {"input_ids": prompts, "max_new_tokens": count, "do_sample": False}
        return runner.batch.run({**job, "adapters": own, "generate": generate})["sequences"]

    together = generate(rows, folders, COUNT)
    for row, folder, answer in zip(rows, folders, together, strict=True):
        given = [answer]

        def one(prompt, left, folder=folder, given=given):  # compares the given answer, and again after a near-tie
            return given.pop() if given else generate([prompt], [folder], left)[0]

        compare.greedy(one, row, greedy(base or case, folder, row))
    return together


LAYOUTS = [
    (1, {}),
    (2, {}),
    (3, {}),
    (2, {"sizes": "pipeline=2"}),
    (4, {"sizes": "tensor=2,pipeline=2"}),
    (2, {"sizes": "data=2"}),
    (2, {"sizes": "data=2", "strategy": "Sharded"}),
    (1, {"sizes": "data=1", "strategy": "Offload"}),
]
IN_LAYOUTS = pytest.mark.parametrize(
    "ranks, options",
    LAYOUTS,
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)


def mixed(case, kinds):
    """Adapters with heads of their own, one without, and the base model."""
    plain = {name: value for name, value in kinds[0].items() if name != "modules_to_save"}
    return [None, *(adapted(case, kind, seed) for seed, kind in enumerate(kinds, 11)), adapted(case, plain, 5), None]


@IN_LAYOUTS
@pytest.mark.parametrize("name", HEADS)
def test_heads_of_several_adapters_and_of_the_base_model_in_one_batch(runner, name, ranks, options):
    case = BY_NAME[name]
    folders = mixed(case, [HEADS[name], HEADS[name]])
    rows = inputs.prompts(case, [5, 33, 16, 9, 1], seed=5)
    answers = check_batch(runner, case, ranks, rows, folders, **options)
    assert len({tuple(answer[-COUNT:]) for answer in answers}) == len(answers)


@IN_LAYOUTS
@pytest.mark.parametrize("name", GENERATING)
def test_tables_of_several_adapters_and_of_the_base_model_in_one_batch(runner, name, ranks, options):
    """Beside an adapter that has a head alone."""
    case, kind = BY_NAME[TABLES[name][0]], TABLES[name][1]
    folders = mixed(case, [kind, kind, HEADS[case.name]])
    rows = inputs.prompts(case, [5, 33, 16, 9, 1, 12], seed=5)
    check_batch(runner, case, ranks, rows, folders, **options)


@IN_LAYOUTS
def test_a_batch_in_which_no_row_takes_the_base_models_head(runner, ranks, options):
    case = BY_NAME[LLAMA]
    folders = [adapted(case, TABLES["both"][1], seed) for seed in (11, 12, 11, 12)]
    check_batch(runner, case, ranks, inputs.prompts(case, [7, 18, 4, 11], seed=6), folders, **options)


@IN_LAYOUTS
@pytest.mark.parametrize("kind", [HEADS[LLAMA], TABLES["both"][1]], ids=["head", "both"])
def test_a_batch_of_one_adapter(runner, kind, ranks, options):
    case = BY_NAME[LLAMA]
    folder = adapted(case, kind, 11)
    check_batch(runner, case, ranks, inputs.prompts(case, [7, 18, 4], seed=6), [folder] * 3, **options)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", [LLAMA, "GPT2LMHeadModel-all"])
def test_quantized_modules_are_replaced_and_not_corrected(runner, name, ranks):
    """The table of the second model is quantised too, for the head is tied to it."""
    case = BY_NAME[name]
    base = quantized_case(case, "I8")
    table = next(options for one, options in TABLES.values() if one == name)
    folders = mixed(case, [HEADS[name], table])
    rows = inputs.prompts(case, [5, 16, 9, 12, 7], seed=7)
    check_batch(runner, case, ranks, rows, folders, base=base, precision="I8")


def test_all_rows_of_a_prompt_are_scored_by_the_head_of_their_adapter(runner):
    """A prompt has other rows than those that a step samples."""
    case = BY_NAME[LLAMA]
    check_states(runner, case, HEADS[LLAMA], 2)
    check_states(runner, case, HEADS[LLAMA], 2, sizes="pipeline=2")
    check_states(runner, case, HEADS[LLAMA], 2, sizes="data=2", strategy="Sharded")


@pytest.mark.parametrize(
    "layout, strategy", [("pipeline=2", ""), ("data=2", ""), ("data=2", "Sharded"), ("data=2", "Offload")]
)
@pytest.mark.parametrize("name", ["LlamaForSequenceClassification-all", "BertForTokenClassification-all"])
def test_classifiers_in_every_layout(runner, name, layout, strategy):
    case = BY_NAME[name]
    more = {"strategy": strategy} if strategy else {}
    check_states(runner, case, CLASSIFIERS[name], ranks_of(layout), sizes=layout, **more)


def spoiled(case, options, spoil, folder):
    """An adapter whose config or tensors `spoil` has changed."""
    source = adapted(case, options)
    config = json.loads((source / "adapter_config.json").read_text())
    tensors = load_file(source / "adapter_model.safetensors")
    spoil(config, tensors)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def says(**fields):
    return lambda config, tensors: config.update(fields)


def holds(name, shape, value=1.0):
    return lambda config, tensors: tensors.update({name: numpy.full(shape, value, numpy.float32)})


def lacks(name):
    return lambda config, tensors: tensors.pop(name)


HEAD, DENSE = "base_model.model.lm_head", "base_model.model.classifier.dense"
ROBERTA, TIED = "RobertaForSequenceClassification-light", "tied"
REFUSED = {
    "not_named": (LLAMA, says(modules_to_save=["score"]), "lm_head.weight is no factor of a linear, nor of a module"),
    "names": (LLAMA, says(modules_to_save="lm_head"), "expected a list of module names"),
    "resized_vocabulary": (LLAMA, holds(f"{HEAD}.weight", (213, 36)), r"\[213, 36\].*\[211, 36\]"),
    "bias_too_many": (LLAMA, holds(f"{HEAD}.bias", (211,)), "has a bias.*has none"),
    "missing_weight": (LLAMA, lacks(f"{HEAD}.weight"), "modules_to_save names lm_head of the base model"),
    "half_a_module": (ROBERTA, lacks(f"{DENSE}.weight"), "classifier.dense has a bias and no weight"),
    "module_of_two": (
        ROBERTA,
        lambda config, tensors: [tensors.pop(f"{DENSE}.{part}") for part in ("weight", "bias")],
        "modules_to_save names classifier.dense of the base model",
    ),
    "missing_bias": (ROBERTA, lacks(f"{DENSE}.bias"), "has no bias.*has one"),
    "other_classes": (
        ROBERTA,
        holds("base_model.model.classifier.out_proj.bias", (9,)),
        r"classifier.out_proj has a bias \[9\]",
    ),
    "flat": (LLAMA, holds(f"{HEAD}.weight", (211 * 36,)), "row-major matrix"),
    "not_finite": (LLAMA, holds(f"{HEAD}.weight", (211, 36), numpy.nan), "infinities or NaNs"),
    "norm": (
        LLAMA,
        lambda config, tensors: (
            config.update(modules_to_save=["lm_head", "norm"]),
            tensors.update({"base_model.model.model.norm.weight": numpy.ones((36,), numpy.float32)}),
        ),
        "expected a row-major matrix",
    ),
    "layer": (
        LLAMA,
        lambda config, tensors: (
            config.update(modules_to_save=["lm_head", "o_proj"]),
            tensors.update({"base_model.model.model.layers.0.self_attn.o_proj.weight": numpy.ones((36, 48), "f4")}),
        ),
        "o_proj, which it has whole, is nothing of LlamaForCausalLM that adapters may replace",
    ),
    "tied_in_part": (TIED, lacks(f"{HEAD}.weight"), "ties lm_head of the base model to model.embed_tokens"),
    "nested": (LLAMA, holds(f"{HEAD}.modules_to_save.default.weight", (211, 36)), "is nothing of LlamaForCausalLM"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_adapter_is_refused_whole_and_by_name(runner, tmp_path, name):
    name, spoil, words = REFUSED[name]
    case, options = BY_NAME[ALL[name][0]], ALL[name][1]
    job = {"model": str(fixtures.checkpoint(case)), "ranks": 1}
    if case.generates:
        job["generate"] = {"input_ids": [[5, 6]], "max_new_tokens": 1}
    else:
        job |= {"inputs": str(tmp_path / "none.safetensors"), "outputs": str(tmp_path / "out.safetensors")}
    answer = runner.batch.ask({**job, "adapters": [str(spoiled(case, options, spoil, tmp_path))]})
    assert not answer["ok"] and answer["reason"] == "ModelUnreadable", answer
    assert re.search(words, answer["error"]), answer["error"]


def numbers(*adapters):
    """The numbers of adapters that an inspection counts."""
    named = [option for i, folder in enumerate(adapters) for option in ("--adapter", f"a{i}={folder}")]
    done = worker.run("inspect", "--model", fixtures.checkpoint(BY_NAME[LLAMA]), "--json", *named)
    return json.loads(done.stdout).get("adapters", 0)


def test_memory_is_kept_for_as_many_heads_as_adapters_have(tmp_path):
    """Each slot has factors of all matrices that any adapter changes, and a whole head those that have one."""
    case = BY_NAME[LLAMA]
    plain = adapted(case, PLAIN)
    first, second = (adapted(case, HEADS[LLAMA], seed) for seed in (11, 12))
    head, one = 211 * 36, numbers(plain)
    assert one > 0
    assert numbers(first) == one + head
    assert numbers(plain, first, plain) == 3 * one + head
    assert numbers(first, second) == numbers(first, first) == 2 * (one + head)


@pytest.fixture(scope="module", params=["tensor=2", "pipeline=2"])
def server(request, tmp_path_factory):
    """A server with memory for three adapters, one of which has a head; others may be loaded from its folder."""
    case, below = BY_NAME[LLAMA], tmp_path_factory.mktemp("adapters")
    for name, made in {
        "head": adapted(case, HEADS[LLAMA], 12),
        "plain": adapted(case, PLAIN, 5),
        "bias": spoiled(case, HEADS[LLAMA], holds(f"{HEAD}.bias", (211,)), tmp_path_factory.mktemp("bias")),
    }.items():
        shutil.copytree(made, below / name)
    more = ["--served-model-name", "base", "--adapter", f"first={adapted(case, HEADS[LLAMA], 11)}"]
    more += ["--speculation", "ngram", "--speculation-min-ngram", "1"] if request.param == "tensor=2" else []
    made = Server(
        fixtures.checkpoint(case), sizes=request.param, options=[*more, "--adapter-updates", below, "--max-adapters", 3]
    )
    yield made
    made.close()


def loads(server, name):
    return server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": name})


def check_answers(server, **folders):
    """Compares the answers of the adapters with PEFT's; None is the base model."""
    case, prompt = BY_NAME[LLAMA], inputs.prompts(BY_NAME[LLAMA], [9], seed=8)[0]
    for name, folder in folders.items():
        body = {"model": name, "prompt": prompt, "max_tokens": COUNT, "temperature": 0, "return_token_ids": True}
        answer = server.ask("/v1/completions", body)["choices"][0]["token_ids"]
        assert answer == greedy(case, folder, prompt)["sequence"][len(prompt) :], name


def test_tokens_of_prompts_are_scored_by_the_head_of_their_adapter(server):
    """The rows that are scored are others than those of the step, and of several adapters at once."""
    case = BY_NAME[LLAMA]
    assert loads(server, "plain").status_code == 200
    prompts = inputs.prompts(case, [33, 20, 9], seed=9)
    folders = {"first": adapted(case, HEADS[LLAMA], 11), "base": None, "plain": adapted(case, PLAIN, 5)}

    def scored(name):
        body = {"model": name, "prompt": prompts, "max_tokens": 1, "prompt_logprobs": 0}
        return [choice["prompt_logprobs"] for choice in server.ask("/v1/completions", body)["choices"]]

    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = dict(zip(folders, pool.map(scored, folders), strict=True))
    for name, folder in folders.items():
        model = theirs(case, folder) if folder else oracle.model(case)
        for ids, given in zip(prompts, answers[name], strict=True):
            with torch.no_grad():
                scores = model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
            own = scores.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
            ours = [entry[str(token)]["logprob"] for token, entry in zip(ids[1:], given[1:], strict=True)]
            assert ours == pytest.approx(own, abs=2e-4), name
    assert server.post("/v1/unload_lora_adapter", {"lora_name": "plain"}).status_code == 200


def test_adapters_with_heads_come_and_go_while_others_stay(server):
    case = BY_NAME[LLAMA]
    first, head = (adapted(case, HEADS[LLAMA], seed) for seed in (11, 12))
    plain = adapted(case, PLAIN, 5)
    check_answers(server, base=None, first=first)
    assert loads(server, "plain").status_code == 200
    refusal = loads(server, "head")
    assert refusal.status_code == 400 and "all 1 slots for adapters with whole modules" in refusal.text
    assert server.post("/v1/unload_lora_adapter", {"lora_name": "first"}).status_code == 200
    refusal = loads(server, "bias")
    assert refusal.status_code == 400 and "has a bias" in refusal.text
    assert loads(server, "head").status_code == 200
    check_answers(server, base=None, head=head, plain=plain)
    # the slot of a head may have an adapter without one, whose head is the base model's
    assert server.post("/v1/unload_lora_adapter", {"lora_name": "head"}).status_code == 200
    assert loads(server, "plain").status_code == 400
    for name in ("plain2", "plain3"):
        reply = server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": "plain"})
        assert reply.status_code == 200
    check_answers(server, base=None, plain=plain, plain2=plain, plain3=plain)
    for name in ("plain", "plain2", "plain3"):
        assert server.post("/v1/unload_lora_adapter", {"lora_name": name}).status_code == 200


def test_without_a_given_adapter_that_has_the_module_none_is_loaded(tmp_path):
    case = BY_NAME[LLAMA]
    shutil.copytree(adapted(case, HEADS[LLAMA], 12), tmp_path / "head")
    made = Server(fixtures.checkpoint(case), ranks=1, options=["--adapter-updates", tmp_path])
    try:
        refusal = loads(made, "head")
        assert refusal.status_code == 400 and "lm_head, and memory for whole modules is kept for none" in refusal.text
    finally:
        made.close()
