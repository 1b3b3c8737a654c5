# SPDX-License-Identifier: Apache-2.0
"""Classes that newer versions of transformers removed, rebuilt from the remaining ones so that tests can build, save
and load them.
"""

import dataclasses

import torch
import transformers
from transformers.utils import ModelOutput


class RetriBertConfig(transformers.BertConfig):
    model_type = "retribert"
    projection_dim: int = 128
    share_encoders: bool = True


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
