#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of docs/design/evidence/families.md: what the names that no simple block serves cost, in lines of
policy and of C++ by block. Policies are counted as they stand in policies/, without those that they extend.
"""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]

# block: its files, each a .cpp and a .h where both exist
BLOCKS = {
    "relative content": ["worker/layers/relative_content", "worker/ops/relative_content", "worker/ops/score_bias"],
    "pooling between layers": ["worker/layers/rows/pooling"],
    "two streams": ["worker/models/two_stream_layer", "worker/models/requests/two_streams"],
    "targets": ["worker/models/requests/request_targets", "worker/models/overlapping_steps"],
    "memory": ["worker/layers/rows/memory_rows"],
    "clusters of a vocabulary": ["worker/models/heads/clusters"],
    "sparse attention": ["worker/layers/patterns/sparse_self_attention", "worker/ops/sparse_attention"],
    "convolutions": ["worker/layers/convolution/convolution"],
    "audio features": ["worker/audio/feature_extractor", "worker/audio/filter_banks"],
    "cells of images, boxes, masks": ["worker/models/heads/cells", "worker/models/heads/pairs"],
    "cross block": ["worker/layers/patterns/cross_block"],
    "entities": ["worker/layers/entity_queries", "worker/models/requests/entities"],
    "integers": [
        "worker/layers/quantized/quantized_layer",
        "worker/layers/quantized/quantized_linear",
        "worker/ops/integers/integer_functions",
    ],
    "bottleneck": ["worker/layers/bottleneck"],
    "block-diagonal matrices": ["worker/layers/block_diagonal"],
    "span convolution": ["worker/layers/convolution/span_convolver"],
    "chunks and hashes": ["worker/layers/patterns/chunked_attention", "worker/ops/chunk_attention"],
    "reversible layers": ["worker/models/reversible_layer"],
    "buckets of distances": ["worker/layers/content_buckets", "worker/ops/bucket_attention"],
    "streams that predict": ["worker/models/requests/stream_states"],
    "two models as one": ["worker/models/joined"],
    "search of passages": ["worker/layers/search/passage_search", "worker/models/heads/passages"],
    "pixels as rows": ["worker/layers/convolution/pixel_input"],
    "experts": ["worker/layers/feed_forward/experts"],
}
NAMES = {
    "DeBERTa": ("deberta", ["relative content"]),
    "DeBERTa-v2, v3": ("deberta_v2", ["relative content", "convolutions"]),
    "Funnel": ("funnel", ["relative content", "pooling between layers"]),
    "XLNet": ("xlnet", ["relative content", "targets"]),
    "Transformer-XL": ("transfo_xl", ["relative content", "memory", "clusters of a vocabulary"]),
    "Longformer": ("longformer", ["sparse attention"]),
    "LED": ("led", ["sparse attention"]),
    "BigBird": ("big_bird", ["sparse attention"]),
    "BigBirdPegasus": ("bigbird_pegasus", ["sparse attention"]),
    "Wav2Vec2, XLSR": ("wav2vec2", ["convolutions", "audio features"]),
    "HuBERT": ("hubert", ["convolutions", "audio features"]),
    "Speech2Text": ("speech_to_text", ["convolutions", "audio features"]),
    "Whisper": ("whisper", ["convolutions", "audio features"]),
    "DETR": ("detr", ["convolutions", "cells of images, boxes, masks"]),
    "LXMERT": ("lxmert", ["cross block", "two streams"]),
    "LUKE": ("luke", ["entities"]),
    "I-BERT": ("ibert", ["integers"]),
    "MobileBERT": ("mobilebert", ["bottleneck"]),
    "SqueezeBERT": ("squeezebert", ["block-diagonal matrices"]),
    "ConvBERT": ("convbert", ["span convolution"]),
    "Reformer": ("reformer", ["chunks and hashes", "reversible layers"]),
    "ProphetNet": ("prophetnet", ["buckets of distances", "streams that predict"]),
    "XLM-ProphetNet": ("xlm_prophetnet", ["buckets of distances", "streams that predict"]),
    "EncoderDecoderModel": ("encoder_decoder", ["two models as one"]),
    "RAG": ("rag", ["search of passages"]),
    "Perceiver": ("perceiver", ["pixels as rows"]),
    "Qwen3-MoE": ("qwen3_moe", ["experts"]),
    "GLM-4.5": ("glm4_moe", ["experts"]),
    "gpt-oss": ("gpt_oss", ["experts"]),
}


def lines(path):
    return len((ROOT / path).read_text().splitlines())


def lines_of(block):
    return sum(lines(f"{name}.{kind}") for name in BLOCKS[block] for kind in ("cpp", "h") if has(f"{name}.{kind}"))


def has(path):
    return (ROOT / path).is_file()


def main():
    print("| name | lines of policy | blocks, with lines of C++ |\n|---|---|---|")
    for name, (policy, blocks) in NAMES.items():
        costs = ", ".join(f"{block} ({lines_of(block)})" for block in blocks)
        print(f"| {name} | {lines(f'policies/{policy}.yaml')} | {costs} |")
    used = {block for _, blocks in NAMES.values() for block in blocks}
    assert used == set(BLOCKS), set(BLOCKS) - used
    print(f"\nAll {len(used)} blocks: {sum(map(lines_of, used)):,} lines.")


main()
