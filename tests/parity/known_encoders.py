"""Encoders by the names that people know, each with the configuration of its best-known checkpoint: what docs/families.md says of them, proved by
test_known.py. Plain data.

name, model_type, checkpoint, class, class of the configuration, what differs from its defaults, where tokens come from, weight bytes of the fullest of
1, 2 and 4 ranks in fp32.
"""
_WORDS, _PIECES, _UNIGRAM = "tokenizer.json, vocab.txt", "tokenizer.json, vocab.json + merges.txt", "tokenizer.json, SentencePiece"
_IDS = "ids only"    # no fast tokenizer, or words are cut by a program of their own
_ROBERTA = {"type_vocab_size": 1, "layer_norm_eps": 1e-5}

KNOWN = (
    ("BertJapanese", "bert", "cl-tohoku/bert-base-japanese", "BertForMaskedLM", "BertConfig", {"vocab_size": 32000}, _IDS, (442603520, 222602752, 112602368)),
    ("HerBERT", "bert", "allegro/herbert-base-cased", "BertModel", "BertConfig", {"vocab_size": 50000, "max_position_embeddings": 514}, _PIECES, (497771520, 250183680, 126391296)),
    ("BORT", "bert", "amazon/bort", "BertModel", "BertConfig",
     {"vocab_size": 50265, "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 768}, _PIECES, (304631808, 154474496, 79395840)),
    ("DPR", "dpr", "facebook/dpr-question_encoder-single-nq-base", "DPRQuestionEncoder", "DPRConfig", {}, _WORDS, (435566592, 217900032, 109068288)),
    ("RetriBERT", "retribert", "yjernite/retribert-base-uncased", "RetriBertModel", "RetriBertConfig", {"num_hidden_layers": 8}, _WORDS, (325309440, 164308992, 83810304)),
    ("ELECTRA", "electra", "google/electra-base-discriminator", "ElectraForPreTraining", "ElectraConfig",
     {"embedding_size": 768, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}, _WORDS, (437932036, 220265476, 111433732)),
    ("DistilBERT", "distilbert", "distilbert/distilbert-base-uncased", "DistilBertForMaskedLM", "DistilBertConfig", {}, _WORDS, (267942120, 135213684, 68851004)),
    ("Megatron-BERT", "megatron-bert", "nvidia/megatron-bert-cased-345m", "MegatronBertModel", "MegatronBertConfig", {}, "vocab.txt", (1334562816, 669683712, 337244160)),
    ("RoBERTa", "roberta", "FacebookAI/roberta-base", "RobertaForMaskedLM", "RobertaConfig", {"max_position_embeddings": 514, **_ROBERTA}, _PIECES, (498789732, 250695860, 126647388)),
    ("CamemBERT", "camembert", "almanach/camembert-base", "CamembertForMaskedLM", "CamembertConfig",
     {"vocab_size": 32005, "max_position_embeddings": 514, **_ROBERTA}, _UNIGRAM, (442621972, 222611980, 112605448)),
    ("PhoBERT", "roberta", "vinai/phobert-base", "RobertaForMaskedLM", "RobertaConfig",
     {"vocab_size": 64001, "max_position_embeddings": 258, **_ROBERTA}, _IDS, (540255236, 271428612, 137013764)),
    ("XLM-R", "xlm-roberta", "FacebookAI/xlm-roberta-base", "XLMRobertaForMaskedLM", "XLMRobertaConfig",
     {"vocab_size": 250002, "max_position_embeddings": 514, **_ROBERTA}, _UNIGRAM, (1113180744, 557889828, 280244372)),
    ("BERTweet", "roberta", "vinai/bertweet-base", "RobertaForMaskedLM", "RobertaConfig",
     {"vocab_size": 64001, "max_position_embeddings": 130, **_ROBERTA}, _IDS, (539862020, 271232004, 136915460)),
    ("DeiT", "deit", "facebook/deit-base-distilled-patch16-224", "DeiTForImageClassificationWithTeacher", "DeiTConfig", {"num_labels": 1000}, "images", (349352768, 179050304, 93900608)),
    ("RoFormer", "roformer", "junnyu/roformer_chinese_base", "RoFormerForMaskedLM", "RoFormerConfig", {"embedding_size": 768}, _IDS, (496398656, 249500320, 126051152)),
    ("LayoutLM", "layoutlm", "microsoft/layoutlm-base-uncased", "LayoutLMModel", "LayoutLMConfig", {}, _WORDS, (450511872, 232845312, 124013568)),
    ("TAPAS", "tapas", "google/tapas-base-finetuned-wtq", "TapasForQuestionAnswering", "TapasConfig",
     {"max_position_embeddings": 512, "num_aggregation_labels": 4}, _IDS, (441133080, 223466520, 114634776)),
    ("VisualBERT", "visual_bert", "uclanlp/visualbert-vqa-coco-pre", "VisualBertForPreTraining", "VisualBertConfig", {"visual_embedding_dim": 2048}, _WORDS, (448299248, 229785212, 120529732)),
    ("XLM", "xlm", "FacebookAI/xlm-mlm-en-2048", "XLMWithLMHeadModel", "XLMConfig", {}, _IDS, (2668476164, 1334545284, 667579844)),
    ("FlauBERT", "flaubert", "flaubert/flaubert_base_uncased", "FlaubertWithLMHeadModel", "FlaubertConfig",
     {"emb_dim": 768, "n_heads": 12, "vocab_size": 67542}, _IDS, (549556056, 274891692, 137561048)),
)
