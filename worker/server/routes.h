// The routes of tasks beside generation. Each takes JSON, runs forward passes, and shapes the outputs as Hugging Face's pipelines, TEI or OpenAI do;
// docs/http.md describes requests and replies. All throw ApiError for what is wrong with a request.
#pragma once
#include "worker/server/completions.h"

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

/// The part of /classify that is token classification.
http::Response classify_tokens(const Serving&, const Call&, const nlohmann::json& body);

}  // namespace pm::server
