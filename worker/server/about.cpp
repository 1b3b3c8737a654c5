// See about.h.
#include "worker/server/about.h"

namespace pm::server {
namespace {

using nlohmann::json;

Operation told(std::string summary, json reply) {
  Operation made;
  made.summary = std::move(summary);
  made.reply = std::move(reply);
  return made;
}

const json kText = schema::text();
const json kCount = schema::integer(0, INT64_MAX);

schema::Properties card_fields() {
  return {{"architecture", kText, true}, {"task", kText, true}, {"max_model_len", kCount, true}, {"routes", schema::list(kText), true}};
}

json model_schema() {
  auto fields = card_fields();
  fields.insert(fields.end(), {{"id", kText, true}, {"object", schema::constant("model"), true}, {"created", schema::described({{"type", "integer"}}, "Unix time"), true}, {"owned_by", kText, true}});
  return schema::object(fields);
}

}  // namespace

Operation describe_card() {
  auto fields = card_fields();
  fields.insert(fields.end(), {{"model", kText, true}, {"topology", kText, true}});
  return told("What there is to ask", schema::object(fields));
}

Operation describe_models() { return told("The model, as OpenAI's list", schema::object({{"object", schema::constant("list"), true}, {"data", schema::list(model_schema()), true}})); }

Operation describe_model() {
  Operation made = told("The model by its name", model_schema());
  made.rest = "model";
  made.refusals = {404};
  return made;
}

Operation describe_version() { return told("The server's version", schema::object({{"version", kText, true}})); }

Operation describe_health() {
  const json reply = schema::object({{"status", schema::one_of({"serving", "loading", "draining", "rank_lost"}), true}});
  Operation made = told("Whether requests are served now: 200, else 503", reply);
  made.other_replies[503] = reply;
  return made;
}

Operation describe_metrics() {
  Operation made = told("Prometheus metrics", nullptr);
  made.replies["text/plain"] = kText;
  return made;
}

Operation describe_plan() { return told("How the model is cut over its ranks, and why", schema::open_object()); }

Operation describe_memory() {
  const json bytes = schema::object({{"weights", kCount, true}, {"kv", kCount, true}, {"activations", kCount, true}, {"communicator", kCount, true}, {"runtime", kCount, true}, {"total", kCount, true}}, "Bytes");
  json rank = schema::object({{"rank", kCount, true}, {"predicted", bytes, true}});
  rank["properties"]["measured"] = bytes;
  Operation made = told("Bytes that every rank holds, planned and measured", schema::object({{"ranks", schema::list(rank), true}}));
  made.query = {{"format", schema::one_of({"json", "text"}, "text: a table for people, as Accept: text/plain")}};
  made.replies["text/plain"] = kText;
  made.refusals = {400};
  return made;
}

Operation describe_document() { return told("This document", schema::open_object()); }

Operation describe_page() {
  Operation made = told("This document as a page for people", nullptr);
  made.replies["text/html"] = kText;
  return made;
}

}  // namespace pm::server
