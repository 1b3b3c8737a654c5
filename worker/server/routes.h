// The routes of tasks beside generation. Each takes JSON, runs forward passes, and shapes the outputs as Hugging Face's pipelines, TEI or OpenAI do;
// docs/http.md describes requests and replies. All throw ApiError for what is wrong with a request.
#pragma once
#include "worker/server/completions.h"
#include "worker/server/operation.h"

namespace pm::server {

/// POST /v1/embeddings, OpenAI's.
http::Response create_embeddings(const Serving&, const Call&);
/// POST /similarity: cosines of embeddings, or CLIP's scores of images and texts.
http::Response similarity(const Serving&, const Call&);
/// POST /classify: classes of texts, pairs, images, sentences that follow, choices; entities of token classification.
http::Response classify(const Serving&, const Call&);
/// POST /fill-mask.
http::Response fill_mask(const Serving&, const Call&);
/// POST /question-answering: a span of a context.
http::Response question_answering(const Serving&, const Call&);
/// POST /forward: named tensors in, named tensors out.
http::Response forward_tensors(const Serving&, const Call&);

/// POST /rerank: documents by how well they answer a query, by a cross-encoder's score or the cosine of embeddings.
http::Response rerank(const Serving&, const Call&);
/// POST /tokenize and /detokenize, vLLM's.
http::Response tokenize(const Serving&, const Call&);
http::Response detokenize(const Serving&, const Call&);

/// The part of /classify that is token classification.
http::Response classify_tokens(const Serving&, const Call&, const nlohmann::json& body);

/// What GET /openapi.json says of them; each stands beside its parser.
Operation describe_completion(const Serving&);
Operation describe_chat_completion(const Serving&);
Operation describe_generate(const Serving&);
Operation describe_generate_text(const Serving&);
Operation describe_embeddings(const Serving&);
Operation describe_similarity(const Serving&);
Operation describe_classify(const Serving&);
Operation describe_entities(const Serving&);
Operation describe_fill_mask(const Serving&);
Operation describe_question_answering(const Serving&);
Operation describe_forward(const Serving&);
Operation describe_rerank(const Serving&);
Operation describe_tokenize(const Serving&);
Operation describe_detokenize(const Serving&);

}  // namespace pm::server
