# SPDX-License-Identifier: Apache-2.0
"""Transformer-XL (Dai et al. 2019), which transformers 5 no longer has, rebuilt so that tests can build, save and load
it as any other model. test_removed_classes.py holds it against answers of the last release that had it.
"""

import dataclasses

import torch
import transformers
from torch import nn
from transformers.utils import ModelOutput


class TransfoXLConfig(transformers.PretrainedConfig):
    model_type = "transfo-xl"
    vocab_size: int = 267735
    cutoffs: list | None = None
    d_model: int = 1024
    d_embed: int = 1024
    n_head: int = 16
    d_head: int = 64
    d_inner: int = 4096
    div_val: int = 4
    pre_lnorm: bool = False
    n_layer: int = 18
    mem_len: int = 1600
    clamp_len: int = 1000
    same_length: bool = True
    untie_r: bool = True
    tie_projs: list | None = None
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    eos_token_id: int | None = None

    def clusters(self):
        """The ids of each cluster, and the width of their embeddings."""
        ends = [0, *self.cutoffs, self.vocab_size]
        return [(ends[i + 1] - ends[i], self.d_embed // self.div_val**i) for i in range(len(ends) - 1)]


class Embedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.scale = config.d_model**0.5
        clusters = config.clusters() if config.div_val > 1 else [(config.vocab_size, config.d_embed)]
        self.emb_layers = nn.ModuleList(nn.Embedding(ids, width) for ids, width in clusters)
        projected = config.div_val > 1 or config.d_embed != config.d_model
        self.emb_projs = nn.ParameterList(
            nn.Parameter(torch.empty(config.d_model, width)) for _, width in clusters if projected
        )

    def forward(self, ids):
        states, first = 0, 0
        for i, table in enumerate(self.emb_layers):
            own = (ids >= first) & (ids < first + table.num_embeddings)
            rows = table((ids - first).clamp(0, table.num_embeddings - 1))
            rows = rows @ self.emb_projs[i].T if len(self.emb_projs) else rows
            states, first = states + rows * own[..., None], first + table.num_embeddings
        return states * self.scale


class Attention(nn.Module):
    def __init__(self, config, biases):
        super().__init__()
        self.n_head, self.width, self.pre_lnorm = config.n_head, config.d_head, config.pre_lnorm
        wide = self.n_head * self.width
        self.qkv_net = nn.Linear(config.d_model, 3 * wide, bias=False)
        self.o_net = nn.Linear(wide, config.d_model, bias=False)
        self.r_net = nn.Linear(config.d_model, wide, bias=False)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.r_w_bias, self.r_r_bias = biases or (nn.Parameter(torch.empty(self.n_head, self.width)) for _ in range(2))

    def forward(self, x, memory, sinusoids, hidden):
        """x [rows, tokens, width], memory [rows, before, width], the sinusoids of distances 0, 1, ..."""
        both = torch.cat([memory, x], 1)
        queries, keys, values = (
            part.unflatten(-1, (self.n_head, self.width)).transpose(1, 2)
            for part in self.qkv_net(self.layer_norm(both) if self.pre_lnorm else both).chunk(3, -1)
        )
        queries = queries[:, :, memory.shape[1] :]
        of_distances = self.r_net(sinusoids).unflatten(-1, (self.n_head, self.width)).transpose(0, 1)
        by_content = (queries + self.r_w_bias[:, None]) @ keys.transpose(2, 3)
        by_distance = (queries + self.r_r_bias[:, None]) @ of_distances.transpose(1, 2)
        places = torch.arange(both.shape[1])
        distances = (places[memory.shape[1] :, None] - places).clamp(0)
        by_distance = by_distance.gather(3, distances.expand_as(by_content))
        scores = (by_content + by_distance) / self.width**0.5
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        out = self.o_net((weights @ values).transpose(1, 2).flatten(2))
        return (x + out if self.pre_lnorm else self.layer_norm(x + out)), weights


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.pre_lnorm = config.pre_lnorm
        up, down = nn.Linear(config.d_model, config.d_inner), nn.Linear(config.d_inner, config.d_model)
        self.CoreNet = nn.Sequential(up, nn.ReLU(), nn.Identity(), down)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)

    def forward(self, x):
        return x + self.CoreNet(self.layer_norm(x)) if self.pre_lnorm else self.layer_norm(x + self.CoreNet(x))


class Layer(nn.Module):
    def __init__(self, config, biases):
        super().__init__()
        self.dec_attn, self.pos_ff = Attention(config, biases), FeedForward(config)

    def forward(self, x, *others):
        x, weights = self.dec_attn(x, *others)
        return self.pos_ff(x), weights


@dataclasses.dataclass
class TransfoXLOutput(ModelOutput):
    last_hidden_state: torch.Tensor | None = None
    prediction_scores: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    mems: tuple | None = None
    hidden_states: tuple | None = None
    attentions: tuple | None = None


def _with(found, **scores):
    """The outputs of a class with a head."""
    return TransfoXLOutput(mems=found.mems, hidden_states=found.hidden_states, attentions=found.attentions, **scores)


class TransfoXLPreTrainedModel(transformers.PreTrainedModel):
    config_class = TransfoXLConfig
    base_model_prefix = "transformer"

    def _init_weights(self, module):
        """Whatever it was: refill draws all parameters again."""


class TransfoXLModel(TransfoXLPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.word_emb = Embedding(config)
        shared = None
        if not config.untie_r:
            shared = self.r_w_bias, self.r_r_bias = [
                nn.Parameter(torch.empty(config.n_head, config.d_head)) for _ in range(2)
            ]
            self._tied_weights_keys = {
                f"layers.{i}.dec_attn.{name}": name for i in range(config.n_layer) for name in ("r_w_bias", "r_r_bias")
            }
        self.layers = nn.ModuleList(Layer(config, shared) for _ in range(config.n_layer))
        self.post_init()

    def sinusoids(self, count, dtype):
        width, far = self.config.d_model, self.config.clamp_len
        distances = torch.arange(count, dtype=torch.float32).clamp(max=far if far > 0 else count)
        angles = distances[:, None] / 10000 ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        return torch.cat([angles.sin(), angles.cos()], 1).to(dtype)

    def forward(self, input_ids, mems=None, output_hidden_states=False, output_attentions=False, **_):
        x, before = self.word_emb(input_ids), self.config.mem_len
        if mems is None:  # a memory of zeros, which is attended to
            mems = [x.new_zeros(before, *x.shape[::2]) for _ in self.layers]
        before = mems[0].shape[0]
        tokens = input_ids.shape[1]
        place, of_query = torch.arange(before + tokens), before + torch.arange(tokens)[:, None]
        hidden = place > of_query
        if self.config.same_length:
            hidden |= place <= of_query - self.config.mem_len
        states, attentions, sinusoids = [x], [], self.sinusoids(before + tokens, x.dtype)
        for layer, memory in zip(self.layers, mems):
            x, weights = layer(x, memory.transpose(0, 1), sinusoids, hidden)
            states.append(x)
            attentions.append(weights)
        kept = [torch.cat([memory, own.transpose(0, 1)])[-self.config.mem_len :] for memory, own in zip(mems, states)]
        return TransfoXLOutput(
            last_hidden_state=x,
            mems=tuple(kept) if self.config.mem_len else None,
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )


class AdaptiveSoftmax(nn.Module):
    def __init__(self, config):
        super().__init__()
        clusters, self.cutoffs = config.clusters(), config.cutoffs
        if self.cutoffs:
            self.cluster_weight = nn.Parameter(torch.empty(len(self.cutoffs), config.d_embed))
            self.cluster_bias = nn.Parameter(torch.empty(len(self.cutoffs)))
        self.out_layers = nn.ModuleList(nn.Linear(width, ids) for ids, width in clusters)
        projected = config.div_val > 1 or config.d_embed != config.d_model
        self.out_projs = nn.ParameterList(
            nn.Parameter(torch.empty(config.d_model, width)) for _, width in clusters if projected
        )

    def scores(self, i, states):
        return self.out_layers[i](states @ self.out_projs[i] if len(self.out_projs) else states)

    def forward(self, states):
        if not self.cutoffs:
            return self.scores(0, states).log_softmax(-1)
        inside = states @ self.out_projs[0] if len(self.out_projs) else states
        first = torch.cat([self.scores(0, states), inside @ self.cluster_weight.T + self.cluster_bias], -1)
        first, of_clusters = first.log_softmax(-1).split([self.cutoffs[0], len(self.cutoffs)], -1)
        others = [
            of_clusters[..., i - 1 : i] + self.scores(i, states).log_softmax(-1) for i in range(1, len(self.out_layers))
        ]
        return torch.cat([first, *others], -1)


class TransfoXLLMHeadModel(TransfoXLPreTrainedModel, transformers.GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = TransfoXLModel(config)
        self.crit = AdaptiveSoftmax(config)
        embedding = self.transformer.word_emb
        self._tied_weights_keys = {}
        for i in range(len(self.crit.out_layers)):
            if config.tie_word_embeddings:
                self.crit.out_layers[i].weight = embedding.emb_layers[i].weight
                self._tied_weights_keys[f"crit.out_layers.{i}.weight"] = f"transformer.word_emb.emb_layers.{i}.weight"
            if (config.tie_projs or [False] * (i + 1))[i] and len(self.crit.out_projs):
                self.crit.out_projs[i] = embedding.emb_projs[i]
                self._tied_weights_keys[f"crit.out_projs.{i}"] = f"transformer.word_emb.emb_projs.{i}"
        self.post_init()

    def forward(self, input_ids, generates=False, **named):
        found = self.transformer(input_ids, **named)
        scores = self.crit(found.last_hidden_state)
        return _with(found, prediction_scores=scores, logits=scores if generates else None)

    @classmethod
    def _supports_default_dynamic_cache(cls):
        return False

    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, attention_mask=None, **_):
        """A prompt, then one token after another behind the memory."""
        ids = input_ids if past_key_values is None else input_ids[:, -1:]
        return {"input_ids": ids, "mems": past_key_values, "generates": True}

    def _reorder_cache(self, mems, rows):
        return [memory.index_select(1, rows) for memory in mems]


class TransfoXLForSequenceClassification(TransfoXLPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = TransfoXLModel(config)
        self.score = nn.Linear(config.d_embed, config.num_labels, bias=False)
        self.post_init()

    def forward(self, input_ids, **named):
        found = self.transformer(input_ids, **named)
        last = (input_ids == self.config.pad_token_id).long().argmax(1) - 1  # without padding the last one
        logits = self.score(found.last_hidden_state)[torch.arange(len(input_ids)), last]
        return _with(found, logits=logits)
