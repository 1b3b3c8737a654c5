# SPDX-License-Identifier: Apache-2.0
"""Classes that newer versions of transformers removed, rebuilt from the remaining ones so that tests can build, save
and load them.
"""

import dataclasses

import removed_relative_keys
import torch
import transformers
from removed_transfo_xl import (  # noqa: F401
    TransfoXLConfig,
    TransfoXLForSequenceClassification,
    TransfoXLLMHeadModel,
    TransfoXLModel,
)
from transformers.utils import ModelOutput

removed_relative_keys.put_back()


class RetriBertConfig(transformers.BertConfig):
    model_type = "retribert"
    projection_dim: int = 128
    share_encoders: bool = True


class XLMProphetNetConfig(transformers.ProphetNetConfig):
    model_type = "xlm-prophetnet"


def _xlm(name):
    """A class of XLM-ProphetNet: ProphetNet's under another name."""
    base = getattr(transformers, name)
    return type(f"XLM{name}", (base,), {"config_class": XLMProphetNetConfig, "__module__": __name__})


XLMProphetNetModel = _xlm("ProphetNetModel")
XLMProphetNetEncoder = _xlm("ProphetNetEncoder")
XLMProphetNetDecoder = _xlm("ProphetNetDecoder")
XLMProphetNetForConditionalGeneration = _xlm("ProphetNetForConditionalGeneration")
XLMProphetNetForCausalLM = _xlm("ProphetNetForCausalLM")


class XLMProphetNetTokenizer(transformers.tokenization_python.PreTrainedTokenizer):
    """Special and unused tokens, then the pieces of a SentencePiece model from the fourth on; a separator ends a
    text."""

    vocab_files_names = {"vocab_file": "prophetnet.tokenizer"}
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file, **named):
        import sentencepiece

        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(vocab_file))
        first = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *(f"[unused{i}]" for i in range(10))]
        own = [self.pieces.id_to_piece(i) for i in range(3, self.pieces.get_piece_size())]
        self.tokens = [*first, *own]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        roles = {"bos": "[SEP]", "eos": "[SEP]", "sep": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]"}
        defaults = {f"{role}_token": token for role, token in (roles | {"mask": "[MASK]"}).items()}
        super().__init__(**(defaults | named))

    @property
    def vocab_size(self):
        return len(self.tokens)

    def get_vocab(self):
        return self.ids | self.added_tokens_encoder

    def _tokenize(self, text):
        return self.pieces.encode(text, out_type=str)

    def _convert_token_to_id(self, token):
        return self.ids.get(token, self.ids["[UNK]"])

    def _convert_id_to_token(self, index):
        return self.tokens[index]

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens).replace("▁", " ").strip()

    def build_inputs_with_special_tokens(self, first, second=None):
        sep = [self.sep_token_id]
        return first + sep + (second + sep if second is not None else [])

    def create_token_type_ids_from_sequences(self, first, second=None):
        return [0] * len(self.build_inputs_with_special_tokens(first, second))


@dataclasses.dataclass
class RetriBertOutput(ModelOutput):
    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    query_embeds: torch.Tensor | None = None
    doc_embeds: torch.Tensor | None = None
    hidden_states: tuple | None = None
    attentions: tuple | None = None


class RetriBertModel(transformers.PreTrainedModel):
    """What embed_questions and embed_answers of the original give for the same ids, side by side; its own forward gave
    a loss."""

    config_class = RetriBertConfig
    base_model_prefix = "retribert"
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.bert_query = transformers.BertModel(config)
        self.project_query = torch.nn.Linear(config.hidden_size, config.projection_dim, bias=False)
        self.project_doc = torch.nn.Linear(config.hidden_size, config.projection_dim, bias=False)
        self.post_init()

    def forward(self, **inputs):
        found = self.bert_query(**inputs)
        return RetriBertOutput(
            found.last_hidden_state,
            found.pooler_output,
            self.project_query(found.pooler_output),
            self.project_doc(found.pooler_output),
            found.hidden_states,
            found.attentions,
        )
