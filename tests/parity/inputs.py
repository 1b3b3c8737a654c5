# SPDX-License-Identifier: Apache-2.0
"""Model inputs: batches padded on either side, bare ids, explicit positions and types, images."""

import cases_decoders_dense
import cases_detection
import cases_entities
import cases_experts
import cases_gemma4
import cases_latent_attention
import cases_latents
import cases_memory
import cases_multimodal
import cases_pooled
import cases_prophetnet
import cases_recurrent
import cases_streams
import inputs_audio
import numpy


def prompts(case, lengths, seed=0):
    """Returns rows of random ids of the given lengths, without special ids that have a meaning for a head."""
    random = numpy.random.default_rng(case.seed * 1000 + seed)
    text = case.text
    special = {text.get(name) for name in ("pad_token_id", "eos_token_id", "sep_token_id")}
    ids = [i for i in range(text.get("vocab_size") or text["src_vocab_size"]) if i not in special]
    rows = [random.choice(ids, length).tolist() for length in lengths]
    return [ended(case, row) for row in rows]


def ended(case, row):
    """The row with the end token that some heads look for; CLIP takes the first of two."""
    end = case.text.get("eos_token_id")
    if "sep_token_id" in case.text and len(row) > 5:  # question, text
        row[3] = row[4] = row[-1] = case.text["sep_token_id"]
    if case.kind == "encoder-decoder" and "Classification" in case.model_class:
        row[-1] = end
    if case.kind == "dual" and end != 2:
        row[-1] = row[-(len(row) + 2) // 3] = end
    return row


def padded(rows, side, pad=3):
    """Returns the rows as one padded batch with its mask."""
    width = max(map(len, rows))
    ids, mask = numpy.full((len(rows), width), pad, numpy.int64), numpy.zeros((len(rows), width), numpy.int64)
    for i, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[i, place], mask[i, place] = row, 1
    return {"input_ids": ids, "attention_mask": mask}


def kinds(case):
    """right, left: padded there, with masks and types. bare: ids and nothing else. given: positions and types that
    nobody would guess."""
    if case.model_type in cases_detection.MODEL_TYPES:
        return ["right", "bare"]
    if case.reads == ("images",):
        masks = case.model_class.endswith("MaskedImageModeling")
        # transformers fills in masked patches of their own size only
        fills = masks and case.settings["encoder_stride"] == case.settings["patch_size"]
        return ["right", "bare"] if case.decodes else ["images", "masked"] if fills else ["images"]
    if case.reads == ("audio",):
        return ["right", "bare"]
    if case.settings.get("attn_type") == "uni":  # whose masks transformers does not join for several rows
        return ["bare"]
    if case.model_type in cases_memory.MODEL_TYPES:  # which read no mask
        return ["bare"] if case.takes else ["bare"]
    if case.has_two_heads and case.model_type == "openai-gpt":  # which takes no mask of choices
        return ["bare", "given"]
    given = (
        case.takes and case.model_class != "DistilBertForMultipleChoice"
    )  # which does not put given positions' choices below each other
    bare = case.model_class not in (
        "VisualBertForQuestionAnswering",
        "VisualBertForRegionToPhraseAlignment",
    )  # which read the masks
    images = ["pictured"] if case.model_type in cases_multimodal.READ_IMAGES else []
    left = [] if cases_recurrent.reads_padding(case) or cases_experts.counts_padding(case) else ["left"]
    return ["right", *left] + (["bare"] if bare else []) + (["given"] if given else []) + images


def _drawn(case, kind, shape):
    """Types and positions, where the class takes them and this kind gives them."""
    random, found = numpy.random.default_rng(case.seed + 7), {}
    if "bbox" in case.takes and kind != "bare":
        corners = numpy.sort(
            random.integers(0, case.settings["max_2d_position_embeddings"], (*shape, 2, 2)), -1
        )  # left and right, upper and lower
        found["bbox"] = corners.swapaxes(-1, -2).reshape(*shape, 4)
    if "langs" in case.takes and kind == "given":
        found["langs"] = random.integers(0, case.settings["n_langs"], shape)
    if "cells" in case.takes and kind != "bare":
        found["token_type_ids"] = numpy.stack(
            [random.integers(0, min(size, 4), shape) for size in case.settings["type_vocab_sizes"]], -1
        )
    if "token_type_ids" in case.takes and kind != "bare":
        found["token_type_ids"] = random.integers(0, case.text["type_vocab_size"], shape)
    if "token_types" in case.takes and kind == "given":  # ids of tokens
        found["token_type_ids"] = random.integers(0, case.text["vocab_size"], shape)
    if "position_ids" in case.takes and kind == "given":
        rows = next(case.text[name] for name in ("n_positions", "max_position_embeddings") if name in case.text)
        found["position_ids"] = random.integers(0, rows, shape)
        if case.model_type in (
            "llama",
            "gptj",
            "falcon",
            "mistral",
            "qwen2",
            "qwen3",
            "phi3",
            "gemma2",
            "gpt_neox",
            "codegen",
            *cases_decoders_dense.MODEL_TYPES,
            *cases_experts.MODEL_TYPES,
            *cases_gemma4.MODEL_TYPES,
            *cases_latent_attention.MODEL_TYPES,
            *cases_multimodal.MODEL_TYPES,
            *cases_recurrent.MODEL_TYPES,
        ):
            found["position_ids"].sort(-1)  # as rotary positions are: far beyond the text, with gaps
    return found


def _features(case, kind, mask):
    """Vectors of an image: masked and typed, bare, or also placed where the words are that speak of them; and tokens to
    compare with them."""
    if "features" not in case.takes or kind == "bare":
        return {}
    random, shape, masked = (
        numpy.random.default_rng(case.seed + 3),
        (len(mask), 6),
        case.model_class.endswith("Alignment"),
    )
    found = {
        "visual_embeds": random.standard_normal((*shape, case.settings["visual_embedding_dim"])).astype(numpy.float32)
    }
    if kind != "left" or masked:
        found["visual_attention_mask"] = (random.random(shape) < 0.7).astype(numpy.int64)
        found["visual_attention_mask"][:, 2] = 1
    if kind != "left":
        found["visual_token_type_ids"] = random.integers(0, case.settings["type_vocab_size"], shape)
    if kind == "given" and case.reads != ("choices",):  # which does not put the alignments of choices below each other
        found["image_text_alignment"] = random.integers(-1, mask.shape[1], (shape[0], shape[1] + 1, 3))
        found["image_text_alignment"][:, 1] = -1
    if masked:
        found["region_to_phrase_position"] = random.integers(-1, mask.shape[1] + shape[1], (len(mask), 9))
    return found


def _global(case, kind, shape):
    """Global tokens, padding among them. Bare inputs leave them to the class, and so do those of a class that takes the
    first."""
    if "global_attention_mask" not in case.takes or kind == "bare":
        return {}
    if kind != "given" and case.model_class.endswith("SequenceClassification"):
        return {}
    return {"global_attention_mask": numpy.random.default_rng(case.seed + 11).integers(0, 4, shape) // 3}


def _spans(case, kind, mask):
    """Where no answer begins or ends, and the token by which it is told that there is none."""
    if "spans" not in case.takes or kind == "bare":
        return {}
    outside = 1 - mask.astype(numpy.float32)
    outside[:, mask.argmax(1)] = 1
    places = mask.argmax(1) + (numpy.arange(len(mask)) % mask.sum(1))
    return {"p_mask": outside} | ({"cls_index": places} if kind != "right" else {})


def _decoder(case, kind, pad):
    """What the decoder is given. Sequence heads read the end token's place in the shifted input, so that nothing else
    can be given."""
    shifts = "SequenceClassification" in case.model_class or (
        kind == "bare"
        and (
            case.model_type in ("bart", "mbart", "fsmt", "led", "bigbird_pegasus")
            or "QuestionAnswering" in case.model_class
        )
    )
    if not case.decodes or shifts:
        return {}
    side = kind if kind in ("right", "left") else "right"
    lengths = [7, 7] if kind in ("bare", "given") else [9, 18, 2, 16, 1][: len(case.lengths)]
    batch = padded(prompts(case, lengths, seed=9), side, pad)
    return {"decoder_input_ids": batch["input_ids"]} | (
        {} if kind == "bare" else {"decoder_attention_mask": batch["attention_mask"]}
    )


def pixels(case, images):
    settings = case.settings.get("vision_config") or case.settings.get("encoder") or case.settings
    size = numpy.broadcast_to(settings.get("image_size", 224), 2).tolist()
    shape = (images, settings.get("num_channels", 3), *size)
    return numpy.random.default_rng(case.seed + 5).standard_normal(shape).astype(numpy.float32)


def make(case, kind):
    """Returns named arrays: ids and masks int64, pixels float32."""
    if case.model_type in cases_detection.MODEL_TYPES:
        return cases_detection.images(case, kind)
    if case.model_class == "PerceiverForOpticalFlow":
        return {"inputs": cases_latents.frames(case, 3)}
    if kind == "images":
        return {"pixel_values": pixels(case, 3)}
    if kind == "pictured":
        any_size = case.model_type in cases_multimodal.ANY_SIZE
        images = cases_multimodal.patches(case) if any_size else {"pixel_values": pixels(case, 3)}
        return cases_multimodal.pictured(case, make(case, "left"), images)
    if kind == "masked":
        images, patches = pixels(case, 3), (case.settings["image_size"] // case.settings["patch_size"]) ** 2
        masked = numpy.random.default_rng(case.seed + 6).random((3, patches)) < 0.4
        return {"pixel_values": images, "bool_masked_pos": masked.astype(numpy.int64)}
    pad = case.text["pad_token_id"]
    if case.reads == ("images",):
        answers = _decoder(case, kind, pad)
        return {"pixel_values": pixels(case, len(answers["decoder_input_ids"]))} | answers
    if case.reads == ("audio",):
        return inputs_audio.audio(case, kind) | _decoder(case, kind, pad)
    lengths = case.lengths if kind in ("right", "left") else [11, 11]
    if case.reads == ("choices",):
        some = cases_pooled.CHOICES if case.model_type in cases_pooled.MODEL_TYPES else [5, 1, 17, 9, 33, 2]
        lengths = some if kind in ("right", "left") else [11] * 6
    batch = padded(prompts(case, lengths), kind if kind in ("right", "left") else "right", pad)
    if kind == "bare" or case.model_type in cases_memory.MODEL_TYPES:
        del batch[
            "attention_mask"
        ]  # 'given' keeps it: without one, transformers takes jumps of position_ids for packed sequences
    batch |= _drawn(case, kind, batch["input_ids"].shape)
    batch |= _global(case, kind, batch["input_ids"].shape)
    batch |= cases_entities.entities(case, kind, batch.get("attention_mask", numpy.ones_like(batch["input_ids"])))
    batch |= cases_memory.memory(case, kind, len(batch["input_ids"]))
    batch |= cases_streams.regions(case, kind, len(batch["input_ids"]))
    batch |= _features(case, kind, batch.get("attention_mask")) | _spans(case, kind, batch.get("attention_mask"))
    if "cells" in case.takes and kind != "bare":
        batch["token_type_ids"] *= batch["attention_mask"][..., None]  # as TAPAS's tokenizer fills up
    if case.has_two_heads and kind != "bare":
        mask = batch.get("attention_mask", numpy.ones_like(batch["input_ids"]))
        random = numpy.random.default_rng(case.seed + 9)
        batch["mc_token_ids"] = numpy.array([random.choice(row.nonzero()[0]) for row in mask])
    if case.has_two_heads and case.model_type == "openai-gpt":
        batch.pop("attention_mask", None)
    if case.reads == ("choices",):
        batch = {name: array.reshape(2, 3, *array.shape[1:]) for name, array in batch.items()}
    batch |= _decoder(case, kind, pad)
    if "images" in case.reads:
        batch["pixel_values"] = pixels(case, 2)
    return batch


def media(case, rows=4):
    """Returns inputs of the encoder of images or audio, one row each and without padding."""
    if case.reads == ("images",):
        return [{"pixel_values": image[None]} for image in pixels(case, rows)]
    batch = inputs_audio.audio(case, "right")
    mask = batch.pop("attention_mask")
    if case.model_type == "whisper":  # whose rows have one length
        return [{name: array[row : row + 1] for name, array in batch.items()} for row in range(rows)]
    return [
        {name: array[row : row + 1, :length] for name, array in batch.items()}
        for row, length in enumerate(mask.sum(1)[:rows])
    ]


def answerable(inputs, separator):
    """The mask of tokens that are not padding and do not lie in the question, which ends with the first separator. A
    question is never answered by its own tokens but the first."""
    ids, columns = inputs["input_ids"], numpy.arange(inputs["input_ids"].shape[1])
    lengths = inputs.get("question_lengths", (ids == separator).argmax(1)[:, None] + 1)
    return inputs.get("attention_mask", numpy.ones_like(ids)) * ((columns == 0) | (columns >= lengths))


def rows_that_count(case, name, inputs):
    """The mask ([rows, length], or [rows] for what is one per row) of the places of an output that mean something, or
    None: all of them."""
    if (of_images := cases_detection.rows_that_count(case, name, inputs)) is not False:
        return of_images
    if case.reads == ("audio",) or (case.reads == ("images",) and case.decodes):
        return inputs_audio.rows_that_count(case, name, inputs)
    if (of_entities := cases_entities.rows_that_count(case, name, inputs)) is not False:
        return of_entities
    if (of_streams := cases_streams.rows_that_count(case, name, inputs)) is not False:
        return of_streams
    if case.model_type in cases_latents.MODEL_TYPES:  # no row of an output is one of a token
        return None
    if case.model_type in cases_pooled.MODEL_TYPES:  # padding is computed as tokens are, and pooled rows have no mask
        return None
    if (
        "input_ids" not in inputs
        or name.startswith(("vision_model_output.", "logits_per_", "image_hidden_states"))
        or (name.endswith("_embeds") and case.kind == "dual")
    ):
        return None
    if case.has_two_heads and name in ("logits", "mc_logits"):
        return inputs.get("attention_mask") if name == "logits" else None
    if name.endswith(
        ("pooler_output", "seq_relationship_logits", "sop_logits", "relevance_logits", "logits_aggregation", "_embeds")
    ) or (name == "logits" and case.one_per_row):
        # an encoder's pooler reads the first column (RoFormer's choices the last): of a padded row the padding, and
        # nobody wants to know that
        last = case.model_class == "RoFormerForMultipleChoice" or (
            case.model_type == "xlnet" and case.settings.get("summary_type") != "first"
        )
        column = -1 if last else 0
        return inputs["attention_mask"][..., column] if case.kind == "encoder" and "attention_mask" in inputs else None
    if case.model_class == "TapasForQuestionAnswering" and name == "logits" and "token_type_ids" in inputs:
        # what lies outside of the table is never chosen, and its mean is over the padding too
        return inputs["attention_mask"] * (inputs["token_type_ids"][..., 1] > 0)
    if "global_attentions." in name:  # of rows with fewer global tokens than others, transformers has uniform weights
        mask = inputs.get("attention_mask", numpy.ones_like(inputs["input_ids"]))
        shape = (-1, mask.shape[-1])
        mask, chosen = mask.reshape(shape), inputs.get("global_attention_mask", numpy.eye(1, mask.shape[-1]))
        counts = (mask * chosen.reshape(shape)).sum(1)
        return None if "attention_mask" not in inputs else mask * (counts == counts.max())[:, None]
    if case.model_class == "BigBirdForQuestionAnswering" and name.endswith("_logits"):
        return answerable(inputs, case.settings["sep_token_id"])
    if "spans" in case.takes and ("_top_" in name or name == "cls_logits"):
        # XLNet answers by the last column of a row without a cls_index, which may be padding
        padding = case.model_type == "xlnet" and name == "cls_logits" and "cls_index" not in inputs
        return inputs["attention_mask"][:, -1] if padding and "attention_mask" in inputs else None
    if "visual_embeds" in inputs:
        vectors = inputs.get("visual_attention_mask", numpy.ones(inputs["visual_embeds"].shape[:-1], numpy.int64))
        mask = numpy.concatenate([inputs["attention_mask"], vectors], -1)
        if "region_to_phrase_position" in inputs and name == "logits":  # of a token with a vector
            return (
                numpy.take_along_axis(mask, inputs["region_to_phrase_position"].clip(0), 1)[..., None]
                * vectors[:, None]
            )
        return mask.reshape(-1, mask.shape[-1])
    mask = inputs.get("attention_mask" if not case.decodes or name.startswith("encoder_") else "decoder_attention_mask")
    mask = cases_prophetnet.rows_that_count(case, name, mask)
    return None if mask is None else mask if name == "logits_ngram" else mask.reshape(-1, mask.shape[-1])
