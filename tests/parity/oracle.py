# SPDX-License-Identifier: Apache-2.0
"""Outputs of transformers, cached by everything that determines them."""

import functools
import hashlib
import json

import cases_experts
import cases_gemma4
import cases_latent_attention
import cases_multimodal
import cases_prophetnet
import cases_recurrent
import cases_reformer
import fixtures
from safetensors.numpy import load_file, save_file


@functools.lru_cache(4)
def model(case, dtype="float32", attention="eager"):
    """transformers' model of the case's checkpoint; every parameter has to come from there. Attentions are shown by
    "eager" only."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)  # models this small only lose by more, above all beside other work
    loaded, report = fixtures.library(case.model_class).from_pretrained(
        fixtures.checkpoint(case), dtype=getattr(torch, dtype), attn_implementation=attention, output_loading_info=True
    )
    assert not any(report.values()), f"{case.name}: transformers does not load what it saved: {report}"
    with_experts = (
        *cases_experts.MODEL_TYPES,
        *cases_gemma4.SMALLER,
        *cases_latent_attention.MODEL_TYPES,
        *cases_multimodal.WITH_EXPERTS,
        *cases_recurrent.WITH_EXPERTS,
    )
    if case.model_type in with_experts and attention == "eager":
        loaded.set_experts_implementation("eager")  # the default takes neither doubles nor tensors at any address
    if case.model_type == "xlnet":  # whose attention is F32 whatever its other weights are
        loaded = loaded.to(getattr(torch, dtype))
    if case.model_type == "funnel":  # whose loading sets the row of padding to zero, whatever the checkpoint has there
        name = next(name for name, _ in loaded.named_parameters() if name.endswith("word_embeddings.weight"))
        stored = load_file(fixtures.checkpoint(case) / "model.safetensors")[name]
        with torch.no_grad():
            loaded.get_parameter(name).copy_(torch.from_numpy(stored))
    if case.model_type == "falcon" and case.settings.get("alibi") and attention == "eager":
        # eager Falcon adds its ALiBi twice, for the mask has it already; its default attention, by which it is judged
        # here too, adds it once
        for block in loaded.get_decoder().h if hasattr(loaded, "get_decoder") else loaded.h:
            block.self_attention.register_forward_pre_hook(_without_second_alibi, with_kwargs=True)
    if case.generates and case.model_type in cases_prophetnet.MODEL_TYPES:
        loaded.generate = functools.partial(_generate_one_by_one, loaded, loaded.generate)
    if case.model_type in cases_reformer.MODEL_TYPES:
        cases_reformer.quiet(loaded, case)
    for module in loaded.modules():
        if type(module).__name__ in ("BigBirdModel", "BigBirdPegasusEncoder"):
            # a short text changes the model: the next long one would have full attention too
            module.register_forward_pre_hook(lambda self, _: self.set_attention_type(self.config.attention_type))
    if case.settings.get("pre_norm") and case.model_type == "flaubert":
        # its layers with norms before the blocks ask a cache for layer i and the attention for what it was not told to
        # give: neither works
        (getattr(loaded, "transformer", loaded)).register_forward_pre_hook(
            lambda _, positional, named: (positional, {**named, "cache": _NoCache()}), with_kwargs=True
        )
        for block in getattr(loaded, "transformer", loaded).attentions:
            block.register_forward_pre_hook(
                lambda _, positional, named: (positional, {**named, "output_attentions": True}), with_kwargs=True
            )
    return loaded.eval()


def _generate_one_by_one(loaded, generate, ids, **named):
    """ProphetNet's passes over several tokens mix up what their queries say of distances: with a cache, it sees one
    token at a time, which is what people run. A prompt that the decoder continues is fed token by token."""
    import torch

    named["use_cache"] = True
    if not loaded.config.is_encoder_decoder and ids.shape[1] > 1:
        cache = None
        with torch.no_grad():
            for token in ids[:, :-1].T:
                cache = loaded(token[:, None], past_key_values=cache, use_cache=True).past_key_values
        named["past_key_values"] = cache
    return generate(ids, **named)


class _NoCache:
    def get_seq_length(self):
        return 0

    def __getitem__(self, layer):
        return None


def _without_second_alibi(_, positional, named):
    return positional, {**named, "alibi": named["alibi"].new_zeros(named["alibi"].shape)}


def flat(outputs, prefix=""):
    """Every tensor of a ModelOutput under its name: hidden_states.0, text_model_output.pooler_output, ..."""
    import torch

    found = {}
    for name, value in outputs.items() if hasattr(outputs, "items") else enumerate(outputs):
        if name == "loss":  # of masked pixels, which transformers reckons unasked
            continue
        if isinstance(value, torch.Tensor):
            found[f"{prefix}{name}"] = value
        elif value is not None and name not in ("past_key_values", "mems"):  # test_memory.py has the latter
            found |= flat(value, f"{prefix}{name}.")
    return found


def _cut(case, name, tensor, inputs):
    """Without the columns that transformers appends to fill a window or a block, and shows in some of its outputs."""
    length = inputs["input_ids"].shape[-1] if "input_ids" in inputs else 0
    if name == "image_hidden_states":  # some families have a dimension of images
        return tensor.flatten(0, -2)
    if "global_attentions." in name:
        return tensor[:, :, :length]
    if case.has_two_heads and "hidden_states." in name:  # transformers tells the choices apart in the last one only
        return tensor.reshape(-1, *tensor.shape[-2:])
    if case.model_type in ("big_bird", "bigbird_pegasus") and not name.startswith(("decoder_", "cross_")):
        if "hidden_states." in name:
            return tensor[:, :length]
        if "attentions." in name:
            return tensor[:, :, :length, :length]
    return tensor


def _moved(parameters, draw):
    """Every parameter, up or down by an ulp of fp32, the same on every machine."""
    import torch

    generator = torch.Generator().manual_seed(draw)
    return {
        name: value * (1 + 2.0**-23 * (2 * torch.randint(0, 2, value.shape, generator=generator) - 1))
        for name, value in parameters
    }


def forward(case, inputs, dtype="float32", attention="eager", draw=None):
    """What transformers answers to named arrays: every tensor of its output, fp32. `dtype`: of the oracle's arithmetic.
    `draw`: with parameters that are moved by an ulp."""
    digest = hashlib.sha256(
        b"".join(name.encode() + array.tobytes() + str(array.shape).encode() for name, array in sorted(inputs.items()))
    ).hexdigest()

    def make(folder):
        import torch

        given = {name: torch.from_numpy(array) for name, array in inputs.items()}
        given = {
            name: tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor
            for name, tensor in given.items()
        }
        if "mems.0" in given:
            given["mems"] = [given.pop(f"mems.{i}").transpose(0, 1) for i in range(case.settings["n_layer"])]
        caches = case.generates or (case.decodes and case.reads != ("images",))
        asked, options = model(case, dtype, attention), {"use_cache": False} if caches else {}
        if case.settings.get("use_mems_eval"):  # which are no input and no output of ours
            options["use_mems"] = False
        with torch.no_grad():
            parameters = {} if draw is None else _moved(asked.named_parameters(), draw)
            whole = flat(
                torch.func.functional_call(
                    asked,
                    parameters,
                    (),
                    {**given, **options, "output_hidden_states": True, "output_attentions": attention == "eager"},
                )
            )
        save_file(
            {name: _cut(case, name, tensor, inputs).float().contiguous().numpy() for name, tensor in whole.items()},
            folder / "outputs.safetensors",
        )

    return load_file(
        fixtures.cached(
            "forward",
            case,
            [
                digest,
                dtype,
                attention,
                draw,
                fixtures.source_of(_moved),
                fixtures.source_of(_without_second_alibi),
                fixtures.source_of(_cut),
            ],
            make,
        )
        / "outputs.safetensors"
    )


def _positions(case, ids):
    """RoBERTa's positions begin after the padding's, and its forward knows that; left to itself transformers' generate
    counts them from 0."""
    import torch

    begins = case.model_type in ("roberta", "xlm-roberta", "camembert")
    return (
        {"position_ids": torch.arange(ids.shape[1]).unsqueeze(0) + case.settings["pad_token_id"] + 1} if begins else {}
    )


def _greedy_media(case, source, max_new_tokens, options):
    """As greedy(), from one row of an encoder's images or audio."""

    def make(folder):
        import torch

        result = model(case).generate(
            **{name: torch.from_numpy(array) for name, array in source.items()},
            max_new_tokens=max_new_tokens,
            do_sample=False,
            output_logits=True,
            output_scores=True,
            return_dict_in_generate=True,
            use_cache=False,
            **options,
        )
        best = [step[0].topk(2).values for step in result.scores]
        gaps = [((two[0] - two[1]) / step[0].std()).item() for two, step in zip(best, result.logits)]
        (folder / "greedy.json").write_text(json.dumps({"sequence": result.sequences[0].tolist(), "gaps": gaps}))

    digest = hashlib.sha256(b"".join(name.encode() + array.tobytes() for name, array in sorted(source.items())))
    key = [digest.hexdigest(), max_new_tokens, options]
    return json.loads((fixtures.cached("greedy", case, key, make) / "greedy.json").read_text())


def greedy(case, prompt, max_new_tokens, **options):
    """transformers.generate for one unpadded prompt (ids, or the encoder's images or audio): the whole sequence (of an
    encoder-decoder: the decoder's), and per new token the gap between the two best scores, after the options'
    processors, in units of the logits' standard deviation."""
    if case.media:
        return _greedy_media(case, prompt, max_new_tokens, options)

    def make(folder):
        import torch

        ids = torch.tensor([prompt])
        # the cache that transformers makes for an encoder-decoder has as many layers as its encoder, whatever the
        # decoder's; FSMT generates without a causal mask when there is none
        result = model(case).generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            output_logits=True,
            output_scores=True,
            return_dict_in_generate=True,
            pad_token_id=0,
            use_cache=case.kind != "encoder-decoder" or case.model_type == "fsmt",
            **options,
            **_positions(case, ids),
        )
        best = [step[0].topk(2).values for step in result.scores]
        gaps = [((two[0] - two[1]) / step[0].std()).item() for two, step in zip(best, result.logits)]
        (folder / "greedy.json").write_text(json.dumps({"sequence": result.sequences[0].tolist(), "gaps": gaps}))

    return json.loads(
        (
            fixtures.cached(
                "greedy",
                case,
                [
                    prompt,
                    max_new_tokens,
                    options,
                    fixtures.source_of(_without_second_alibi),
                    fixtures.source_of(_positions),
                ],
                make,
            )
            / "greedy.json"
        ).read_text()
    )


def beams(case, prompt, max_new_tokens, **options):
    """transformers.generate with beams for one prompt: the sequences without their padding, their scores, and the
    smallest distance between two neighbouring candidates at any step, in units of the standard deviation of the scores
    that they come from."""

    def make(folder):
        import torch

        ids = torch.tensor([prompt])
        gaps = []
        loaded = model(case)
        usual = type(loaded)._get_top_k_continuations

        def noted(self, accumulated_log_probs, *positional, **named):
            width = named.get("beams_to_keep")
            best = accumulated_log_probs[0].topk(width + 1).values
            best = best[best > -1e8]
            scores = accumulated_log_probs[0][accumulated_log_probs[0] > -1e8]
            if len(best) > 1:
                gaps.append(((best[:-1] - best[1:]).min() / scores.std()).item())
            return usual(self, accumulated_log_probs, *positional, **named)

        try:
            type(loaded)._get_top_k_continuations = noted
            result = loaded.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_new_tokens,
                do_sample=False,
                output_scores=True,
                return_dict_in_generate=True,
                pad_token_id=0,
                use_cache=case.kind != "encoder-decoder" or case.model_type == "fsmt",
                **options,
            )
        finally:
            type(loaded)._get_top_k_continuations = usual
        lengths = (result.beam_indices >= 0).sum(1).tolist()  # of the answers
        start = 1 if case.kind == "encoder-decoder" else len(prompt)
        (folder / "beams.json").write_text(
            json.dumps(
                {
                    "sequences": [row[: start + length] for row, length in zip(result.sequences.tolist(), lengths)],
                    "scores": result.sequences_scores.tolist(),
                    "gap": min(gaps),
                }
            )
        )

    return json.loads(
        (fixtures.cached("beams", case, [prompt, max_new_tokens, options], make) / "beams.json").read_text()
    )
