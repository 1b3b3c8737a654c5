# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for I-BERT in integers (quant_mode); cases.py collects them.

Every activation is rounded to integers, so an ulp that moves a value over a rounding edge moves the answer by a step of
its scale, a hundredth of the largest value. What is compared is therefore whether all integers are those of
transformers: then answers agree as those of floating point do, and one step elsewhere fails. Ranges come from
transformers in training mode (fixtures.calibrate), which finds shifts of the norms too.
"""

LIGHT = (1, 3)
# as in cases.py
SEEDS = {
    "IBertForMaskedLM-quantized": 3534,
    "IBertModel-quantized": 3535,
    "IBertForSequenceClassification-quantized": 536,
    "IBertForMultipleChoice-quantized": 2537,
    "IBertForTokenClassification-quantized": 3538,
    "IBertForQuestionAnswering-quantized": 3539,
    "IBertModel-float-gelu": 2540,
    "IBertModel-float-softmax": 2541,
}
_SIZES = {
    "hidden_size": 30,
    "num_attention_heads": 5,
    "num_hidden_layers": 3,
    "intermediate_size": 37,
    "vocab_size": 101,
    "max_position_embeddings": 80,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 3,
    "bos_token_id": 4,
    "eos_token_id": 100,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "quant_mode": True,
}


def rounds(case):
    """Returns whether a case computes in integers."""
    return case.settings.get("quant_mode", False)


def cases(family):
    ibert = family("ibert", "encoder", "IBertConfig", ("token_type_ids", "position_ids"), **_SIZES)
    return (
        *ibert("quantized", "IBertForMaskedLM"),
        *ibert(
            "quantized",
            "IBertModel IBertForSequenceClassification IBertForMultipleChoice IBertForTokenClassification "
            "IBertForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        # one function in floating point, or all
        *ibert("float-gelu", "IBertModel", ranks=LIGHT, num_hidden_layers=2, force_dequant="gelu"),
        *ibert("float-softmax", "IBertModel", ranks=LIGHT, num_hidden_layers=2, force_dequant="softmax"),
        *ibert("float-norms", "IBertModel", ranks=LIGHT, num_hidden_layers=2, force_dequant="layernorm"),
        *ibert("float-functions", "IBertModel", ranks=LIGHT, num_hidden_layers=2, force_dequant="nonlinear"),
    )
