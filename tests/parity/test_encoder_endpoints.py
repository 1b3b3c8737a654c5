# SPDX-License-Identifier: Apache-2.0
"""HTTP endpoints of encoders whose outputs or inputs differ from BERT's, against transformers on the same tiny
checkpoints.
"""

import numpy
import torch
import transformers
from test_endpoints import TEXTS, encode, serve, word_pieces  # noqa: F401 (serve is a fixture)

SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}


def test_a_tower_s_vectors_keep_their_length(serve):
    """DPR compares by the dot product."""
    tokenizer = word_pieces()
    server, model = serve(
        "DPRQuestionEncoder", transformers.DPRConfig(vocab_size=len(tokenizer), projection_dim=9, **SIZES), tokenizer
    )
    with torch.no_grad():
        wanted = numpy.stack([model(**encode(tokenizer, text)).pooler_output[0].numpy() for text in TEXTS])
    answer = server.ask("/v1/embeddings", {"input": TEXTS})["data"]
    numpy.testing.assert_allclose([one["embedding"] for one in answer], wanted, atol=2e-5)
    assert abs(numpy.linalg.norm(wanted[0]) - 1) > 0.01


def test_replaced_tokens_are_told_by_forward_alone(serve):
    tokenizer = word_pieces()
    server, model = serve(
        "ElectraForPreTraining",
        transformers.ElectraConfig(vocab_size=len(tokenizer), embedding_size=12, **SIZES),
        tokenizer,
    )
    given = encode(tokenizer, TEXTS[0])
    with torch.no_grad():
        wanted = model(**given).logits.numpy()
    answer = server.ask("/forward", {"inputs": {name: tensor.tolist() for name, tensor in given.items()}})["outputs"][
        "logits"
    ]
    assert answer["shape"] == list(wanted.shape)
    numpy.testing.assert_allclose(answer["data"], wanted, atol=2e-5)
    assert "POST /forward" in server.refused("/classify", {"inputs": "a"}, 404)["message"]
    assert server.ask("/tokenize", {"prompt": TEXTS[0]})


def test_cells_of_a_table_are_scored(serve):
    config = transformers.TapasConfig(
        vocab_size=60, type_vocab_sizes=[3, 5, 6, 2, 7, 4, 3], num_aggregation_labels=4, **SIZES
    )
    server, model = serve("TapasForQuestionAnswering", config)
    columns = [[0, 0, 0, 0, 0, 0, 0]] * 3 + [[1, column, row, 0, 0, 0, 0] for row in (0, 1, 2) for column in (1, 2)]
    inputs = {"input_ids": [list(range(5, 14))], "token_type_ids": [columns]}
    with torch.no_grad():
        wanted = model(**{name: torch.tensor(values) for name, values in inputs.items()})
    answer = server.ask("/forward", {"inputs": inputs})["outputs"]
    assert sorted(answer) == ["logits", "logits_aggregation"]
    numpy.testing.assert_allclose(answer["logits"]["data"], wanted.logits, rtol=1e-5)
    numpy.testing.assert_allclose(answer["logits_aggregation"]["data"], wanted.logits_aggregation, atol=2e-5)
    message = server.refused("/forward", {"inputs": {**inputs, "token_type_ids": [[0] * 9]}}, 400)["message"]
    assert "token_type_ids has the shape [1, 9]" in message and "7 numbers per token" in message
    columns[4] = [1, 5, 0, 0, 0, 0, 0]
    assert "numbers of column 1 go from 0 to 4" in server.refused("/forward", {"inputs": inputs}, 400)["message"]
