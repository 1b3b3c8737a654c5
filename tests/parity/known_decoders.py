"""What is said of the best-known checkpoint of each family of cases_decoders.py: plain data for docs/families.md. Nothing is downloaded: sizes are
those of config.json, given where they are not the configuration class's own, and test_known.py counts the bytes."""

# from what tokens are made, the first that the folder has
FAST, PAIRS, PIECES = "tokenizer.json, else ids only", "tokenizer.json, else vocab.json + merges.txt", "tokenizer.json, else spiece.model"
LANGUAGES, TWO_MODELS, NUMBERED = "tokenizer.json, else sentencepiece.bpe.model and languages", "tokenizer.json, else source.spm, target.spm, vocab.json", \
    "tokenizer.json, else sentencepiece.bpe.model, vocab.json and languages"

# (names that users know, checkpoint, model_type, class, configuration class, settings, stored type, tokenizer, bytes of the largest rank at n = 1, 2, 4)
KNOWN = (
    ("GPT", "openai-community/openai-gpt", "openai-gpt", "OpenAIGPTLMHeadModel", "OpenAIGPTConfig", {}, "F32", FAST, (466139136, 233180160, 116702208)),
    ("DialoGPT", "microsoft/DialoGPT-medium", "gpt2", "GPT2LMHeadModel", "GPT2Config", {"n_embd": 1024, "n_layer": 24, "n_head": 16}, "F32", PAIRS, (1419292672, 709947392, 355274752)),
    ("CPM", "TsinghuaAI/CPM-Generate", "gpt2", "GPT2LMHeadModel", "GPT2Config", {"n_embd": 2560, "n_layer": 32, "n_head": 32, "vocab_size": 30000}, "F32", "ids only", (10388295680, 5195141120, 2598563840)),
    ("Megatron-GPT2", "nvidia/megatron-gpt2-345m", "gpt2", "GPT2LMHeadModel", "GPT2Config", {"n_embd": 1024, "n_layer": 24, "n_head": 16}, "F16",
     PAIRS, (709646336, 354973696, 177637376)),
    ("BertGeneration", "google/bert_for_seq_generation_L-24_bbc_encoder", "bert-generation", "BertGenerationEncoder", "BertGenerationConfig", {}, "F32", FAST, (1417609216, 709103616, 354852864)),
    ("OPT", "facebook/opt-6.7b", "opt", "OPTForCausalLM", "OPTConfig", {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "ffn_dim": 16384}, "F16",
     PAIRS, (13316947968, 6659268608, 3330433024)),
    ("CTRL", "Salesforce/ctrl", "ctrl", "CTRLLMHeadModel", "CTRLConfig", {"n_positions": 50000}, "F32", "ids only", (6551858200, 3276671500, 1639080712)),
    ("BARThez", "moussaKam/barthez", "mbart", "MBartForConditionalGeneration", "MBartConfig",
     {"vocab_size": 50002, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12, "decoder_attention_heads": 12,
      "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}, "F32", FAST, (557086024, 278693540, 139498840)),
    ("mBART", "facebook/mbart-large-cc25", "mbart", "MBartForConditionalGeneration", "MBartConfig", {"vocab_size": 250027}, "F32", LANGUAGES, (2444407468, 1222590808, 611680432)),
    ("mBART-50", "facebook/mbart-large-50-many-to-many-mmt", "mbart", "MBartForConditionalGeneration", "MBartConfig", {"vocab_size": 250054}, "F32", LANGUAGES, (2444518168, 1222644108, 611709132)),
    ("Blenderbot", "facebook/blenderbot-3B", "blenderbot", "BlenderbotForConditionalGeneration", "BlenderbotConfig", {}, "F16", PAIRS, (5392553616, 2696870728, 1349029284)),
    ("BlenderbotSmall", "facebook/blenderbot_small-90M", "blenderbot-small", "BlenderbotSmallForConditionalGeneration", "BlenderbotSmallConfig", {"vocab_size": 54944}, "F32",
     "ids only", (350255744, 175254848, 87754400)),
    ("Marian", "Helsinki-NLP/opus-mt-en-de", "marian", "MarianMTModel", "MarianConfig",
     {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048,
      "decoder_ffn_dim": 2048, "max_position_embeddings": 512}, "F32", TWO_MODELS, (295777236, 147981804, 74084088)),
    ("Pegasus", "google/pegasus-xsum", "pegasus", "PegasusForConditionalGeneration", "PegasusConfig",
     {"vocab_size": 96103, "encoder_layers": 16, "decoder_layers": 16, "max_position_embeddings": 512}, "F32", PIECES, (2275184028, 1138093776, 569546600)),
    ("M2M100", "facebook/m2m100_418M", "m2m_100", "M2M100ForConditionalGeneration", "M2M100Config", {}, "F32", NUMBERED, (1935622144, 968187904, 484470784)),
    ("FSMT", "facebook/wmt19-en-de", "fsmt", "FSMTForConditionalGeneration", "FSMTConfig", {"encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 8192}, "F32",
     "ids only", (1078984704, 539676672, 270022656)),
    ("mT5", "google/mt5-base", "mt5", "MT5ForConditionalGeneration", "MT5Config", {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12}, "F32", PIECES, (1561261056, 780725760, 390458112)),
    ("ByT5", "google/byt5-base", "t5", "T5ForConditionalGeneration", "T5Config",
     {"vocab_size": 384, "d_model": 1536, "d_ff": 3968, "num_layers": 18, "num_decoder_layers": 6, "num_heads": 12, "feed_forward_proj": "gated-gelu"}, "F32", "bytes", (2324253696, 1162298880, 581321472)),
    ("UL2", "google/ul2", "t5", "T5ForConditionalGeneration", "T5Config",
     {"d_model": 4096, "d_kv": 256, "d_ff": 16384, "num_layers": 32, "num_heads": 16, "feed_forward_proj": "gated-silu"}, "BF16", PIECES, (38919227392, 19460277248, 9730802176)),
    ("Mistral", "mistralai/Mistral-7B-v0.1", "mistral", "MistralForCausalLM", "MistralConfig", {}, "BF16", FAST, (14221320192, 7110926336, 3555729408)),
    ("Qwen2", "Qwen/Qwen2.5-7B-Instruct", "qwen2", "Qwen2ForCausalLM", "Qwen2Config",
     {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064}, "BF16",
     FAST, (14141238272, 7070823424, 3535616000)),
    ("Qwen3", "Qwen/Qwen3-8B", "qwen3", "Qwen3ForCausalLM", "Qwen3Config",
     {"num_hidden_layers": 36, "num_key_value_heads": 8, "intermediate_size": 12288}, "BF16", FAST, (15136811008, 7568713728, 3784665088)),
    ("Phi-3", "microsoft/Phi-3-mini-4k-instruct", "phi3", "Phi3ForCausalLM", "Phi3Config", {"pad_token_id": 32000}, "BF16", FAST, (7445157888, 3722778624, 1861588992)),
    ("Gemma 2", "google/gemma-2-9b", "gemma2", "Gemma2ForCausalLM", "Gemma2Config",
     {"hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8}, "BF16", FAST, (18483411968, 9242311680, 4621761536)),
    ("GPT-NeoX", "EleutherAI/gpt-neox-20b", "gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", {}, "F16", FAST, (40489426944, 20246347776, 10124808192)),
    ("CodeGen", "Salesforce/codegen-2B-mono", "codegen", "CodeGenForCausalLM", "CodeGenConfig", {"n_embd": 2560, "n_layer": 32, "n_head": 32, "vocab_size": 51200}, "F16",
     FAST, (5296568320, 2648535040, 1324518400)),
)
