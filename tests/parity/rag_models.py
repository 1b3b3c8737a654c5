# SPDX-License-Identifier: Apache-2.0
"""Folders of small RAG models with random weights, tokenizers and an index, and what transformers answers from the
same passages: the index is searched by torch, and RagRetriever makes the generator's inputs.
"""

import dataclasses
import json
import math
import types

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers.models.rag.retrieval_rag import RagRetriever

torch.set_num_threads(1)  # the models are so small that threads wait more than they compute

QUESTIONS = ["Who Wrote the green book?", "where does the old river end", "what is  a red stone"]
_WORDS = "who wrote the green book where does old river end what is a red stone house sky tree far near song".split()
PASSAGES = 23
EMBEDDING_WIDTH = 18
NO_REPEAT_NGRAM_SIZE = 2  # of every request, for random models repeat a token for ever
CLASSES = {"token": "RagTokenForGeneration", "sequence": "RagSequenceForGeneration"}
# name -> over what passages are marginalised, the kind of generator, and options
MODELS = {
    "token-bart": ("token", "bart", {"seed": 3}),
    "token-bart-shards": ("token", "bart", {"seed": 4, "shards": 2, "dtype": torch.float16, "n_docs": 5}),
    "token-t5": ("token", "t5", {"seed": 5, "title_sep": " | ", "doc_sep": " : "}),
    "sequence-bart": ("sequence", "bart", {"seed": 6}),
    "sequence-t5-all": ("sequence", "t5", {"seed": 7, "do_deduplication": False, "n_docs": 4}),
    "sequence-bart-shards": ("sequence", "bart", {"seed": 8, "shards": 3, "dtype": torch.bfloat16}),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """As in cases.py, for docs/reference/families.md."""

    model_type: str
    model_class: str
    ranks: tuple = (1, 2)


CASES = [Case("rag", CLASSES[marginal]) for marginal, _, _ in MODELS.values()]


def passages(count=PASSAGES, seed=5):
    """Titles, of which some stand in quotation marks, and texts of different lengths with double spaces."""
    random = torch.Generator().manual_seed(seed)

    def words(number):
        return [_WORDS[int(i)] for i in torch.randint(len(_WORDS), (number,), generator=random)]

    made = []
    for number in range(count):
        title = " ".join(words(2 + number % 2))
        title = f'"{title}"' if number % 3 == 0 else title
        made.append({"title": title, "text": "  ".join(words(4 + 3 * (number % 5))), "id": number})
    return made


def question_tokenizer():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "?", *_WORDS]
    made = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def generator_tokenizer(kind):
    """Bytes as tokens, with BART's or T5's special tokens at the beginning of the vocabulary."""
    special = ["<s>", "<pad>", "</s>", "<unk>"] if kind == "bart" else ["</s>", "<pad>", "<unk>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate([*special, *alphabet, "Ġt", "he", "er", "re"])}
    made = Tokenizer(models.BPE(vocabulary, [("Ġ", "t"), ("h", "e"), ("e", "r"), ("r", "e")], unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    around = [("<s>", 0), ("</s>", 2)] if kind == "bart" else [("</s>", 0)]
    made.post_processor = processors.TemplateProcessing("<s> $A </s>" if kind == "bart" else "$A </s>", None, around)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        **({"bos_token": "<s>"} if kind == "bart" else {}),
    )


def _generator(kind, vocabulary):
    if kind == "bart":
        return transformers.BartConfig(
            vocab_size=vocabulary,
            d_model=20,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=5,
            decoder_attention_heads=4,
            encoder_ffn_dim=23,
            decoder_ffn_dim=29,
            max_position_embeddings=150,
        )
    return transformers.T5Config(
        vocab_size=vocabulary,
        d_model=20,
        d_kv=5,
        d_ff=23,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=1,
        # T5's own are 0 and 1; behind beams that have ended transformers puts end tokens where that of padding is 0
        pad_token_id=1,
        eos_token_id=0,
        bos_token_id=None,
        prefix="answer:  ",
        tie_word_embeddings=True,
    )


def _refill(model, seed):
    """As fixtures.py draws weights; what layers add to their states is smaller, so that the last token counts."""
    random = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=random)
        if "norm" in name.lower() and parameter.dim() == 1 and "bias" not in name:
            values = 1 + 0.2 * values
        elif parameter.dim() == 1:
            values = 0.2 * values
        elif "embed" in name or "shared" in name:
            values = 0.4 * values
        else:
            small = any(part in name for part in ("out_proj", "fc2", ".o.weight", ".wo."))
            values = (0.5 if small else 2) * values / math.sqrt(parameter.shape[1])
        parameter.data.copy_(values)


class Rag:
    """A model in a folder, and transformers' answers."""

    def __init__(self, folder, marginal, kind="bart", *, seed=1, shards=1, dtype=torch.float32, spread=0.3, **settings):
        self.folder, self.kind, self.marginal = folder, kind, marginal
        self.question, self.generator = question_tokenizer(), generator_tokenizer(kind)
        dpr = transformers.DPRConfig(
            vocab_size=len(self.question),
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=21,
            max_position_embeddings=120,
            projection_dim=EMBEDDING_WIDTH,
        )
        settings = {"n_docs": 3, "max_combined_length": 110, **settings}
        config = transformers.RagConfig.from_question_encoder_generator_configs(
            dpr, _generator(kind, len(self.generator)), retrieval_vector_size=EMBEDDING_WIDTH, **settings
        )
        torch.manual_seed(seed)
        self.model = getattr(transformers, CLASSES[marginal])(config).eval()
        _refill(self.model, seed)
        self.model.save_pretrained(folder)
        self.question.save_pretrained(folder / "question_encoder_tokenizer")
        self.generator.save_pretrained(folder / "generator_tokenizer")
        self.passages, self.known = passages(), {}
        random = torch.Generator().manual_seed(seed + 77)
        self.embeddings = (spread * torch.randn(PASSAGES, EMBEDDING_WIDTH, generator=random)).to(dtype)
        self.write_index(shards)

    def write_index(self, shards=1):
        index = self.folder / "index"
        index.mkdir(exist_ok=True)
        for number, (rows, lines) in enumerate(
            zip(self.embeddings.tensor_split(shards), _split(self.passages, shards)), 1
        ):
            ending = "" if shards == 1 else f"-{number:05}-of-{shards:05}"
            save_file({"embeddings": rows.contiguous()}, index / f"embeddings{ending}.safetensors")
            (index / f"passages{ending}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def change_config(self, **settings):
        path = self.folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    def retrieve(self, question):
        """Numbers and scores of the best passages, by torch's exact search."""
        ids = self.question(question, return_tensors="pt")
        with torch.no_grad():
            vector = self.model.rag.question_encoder(**ids)[0]
        best = torch.topk(vector @ self.embeddings.float().T, self.model.config.n_docs)
        return best.indices[0].tolist(), best.values

    def contexts(self, question):
        config = self.model.config
        numbers, scores = self.retrieve(question)
        found = [self.passages[number] for number in numbers]
        docs = [{key: [passage[key] for passage in found] for key in ("title", "text")}]
        text = self.question.decode(self.question(question)["input_ids"], skip_special_tokens=True)
        retriever = types.SimpleNamespace(config=config, generator_tokenizer=self.generator)
        prefix = getattr(config.generator, "prefix", None)
        ids, mask = RagRetriever.postprocess_docs(retriever, docs, [text], prefix, config.n_docs, "pt")
        return ids, mask, scores

    def answers(self, question, new_tokens, beams=1, count=1, scores=None):
        """Rows of transformers' generate() without padding; `scores` stand for those of the passages."""
        return self.scored_answers(question, new_tokens, beams, count, scores)[0]

    def scored_answers(self, question, new_tokens, beams=1, count=1, scores=None):
        """The rows and their scores: sequences_scores of beams, or what RAG-Sequence ranks its candidates by."""
        key = (question, new_tokens, beams, count, scores is None)
        if key not in self.known:
            generate = self._token_answers if self.marginal == "token" else self._sequence_answers
            ids, mask, found = self.contexts(question)
            settings = {
                "context_input_ids": ids,
                "context_attention_mask": mask,
                "doc_scores": found if scores is None else scores,
                "num_beams": beams,
                "num_return_sequences": count,
                "do_sample": False,
                "no_repeat_ngram_size": NO_REPEAT_NGRAM_SIZE,
            }
            with torch.no_grad():
                rows, scored = generate(settings, new_tokens)
            pad = self.model.config.generator.pad_token_id
            rows = [row[:1] + _before_padding(row[1:], pad) for row in rows.tolist()]
            self.known[key] = rows, None if scored is None else scored.tolist()
        return self.known[key]

    def _token_answers(self, settings, new_tokens):
        found = self.model.generate(
            **settings, max_length=new_tokens + 1, return_dict_in_generate=True, output_scores=True
        )
        return found.sequences, found.sequences_scores if settings["num_beams"] > 1 else None

    def _sequence_answers(self, settings, new_tokens):
        outputs, forward = [], self.model.forward
        self.model.forward = lambda **inputs: outputs.append(forward(**inputs)) or outputs[-1]
        try:
            rows = self.model.generate(**settings, max_new_tokens=new_tokens)
        finally:
            self.model.forward = forward
        (scored,) = outputs
        return rows, (-scored["loss"]).topk(settings["num_return_sequences"]).values


def _split(items, parts):
    return [list(part) for part in (items[i.start : i.stop] for i in _ranges(len(items), parts))]


def _ranges(count, parts):
    begin = 0
    for part in range(parts):
        end = begin + count // parts + (part < count % parts)
        yield range(begin, end)
        begin = end


def _before_padding(row, pad):
    while row and row[-1] == pad:
        row = row[:-1]
    return row
