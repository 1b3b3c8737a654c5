// SPDX-License-Identifier: Apache-2.0
#include "worker/server/monitoring/model_info.h"

namespace pm::server {
namespace {

using nlohmann::json;

Operation make_operation(std::string summary, json reply) {
  Operation made;
  made.summary = std::move(summary);
  made.reply = std::move(reply);
  return made;
}

const json text_schema = schema::text();
const json count_schema = schema::integer(0, INT64_MAX);

schema::Properties card_fields() {
  return {{"architecture", text_schema, true},
          {"task", text_schema, true},
          {"max_model_len", count_schema, true},
          {"routes", schema::list(text_schema), true}};
}

json model_schema() {
  auto fields = card_fields();
  fields.insert(fields.end(),
                {{"id", text_schema, true},
                 {"object", schema::constant("model"), true},
                 {"created", schema::described({{"type", "integer"}}, "Unix time"), true},
                 {"owned_by", text_schema, true},
                 {"root", schema::described(text_schema, "The folder of an adapter, else the id"), true},
                 {"parent", schema::described(schema::or_null(schema::text()), "The base model of an adapter"), true}});
  return schema::object(fields);
}

}  // namespace

Operation describe_card() {
  auto fields = card_fields();
  fields.insert(fields.end(), {{"model", text_schema, true}, {"kind", text_schema, true}});
  Operation made =
      make_operation("Model information and supported routes; a page for browsers", schema::object(fields));
  made.replies["text/html"] = text_schema;
  return made;
}

Operation describe_models() {
  return make_operation("Models, as OpenAI's list", schema::object({{"object", schema::constant("list"), true},
                                                                    {"data", schema::list(model_schema()), true}}));
}

Operation describe_model() {
  Operation made = make_operation("One model by its name", model_schema());
  made.path_parameter = "model";
  made.error_statuses = {404};
  return made;
}

Operation describe_version() {
  return make_operation("The server's version", schema::object({{"version", text_schema, true}}));
}

Operation describe_health() {
  const json reply =
      schema::object({{"status", schema::one_of({"serving", "loading", "draining", "rank_lost"}), true}});
  Operation made = make_operation("Returns 200 if the server accepts requests, otherwise 503", reply);
  made.other_replies[503] = reply;
  return made;
}

Operation describe_metrics() {
  Operation made = make_operation("Prometheus metrics", nullptr);
  made.replies["text/plain"] = text_schema;
  return made;
}

Operation describe_plan() {
  return make_operation("The parallelism plan of the model and its reason", schema::open_object());
}

Operation describe_memory() {
  const json bytes = schema::object({{"weights", count_schema, true},
                                     {"kv", count_schema, true},
                                     {"activations", count_schema, true},
                                     {"communicator", count_schema, true},
                                     {"runtime", count_schema, true},
                                     {"total", count_schema, true}},
                                    "Bytes");
  json rank = schema::object({{"rank", count_schema, true}, {"predicted", bytes, true}});
  rank["properties"]["measured"] = bytes;
  Operation made = make_operation("Memory of every rank in bytes, predicted by the plan and measured",
                                  schema::object({{"ranks", schema::list(rank), true}}));
  made.query = {{"format", schema::one_of({"json", "text"}, "text returns a table, as does Accept: text/plain")}};
  made.replies["text/plain"] = text_schema;
  made.error_statuses = {400};
  return made;
}

Operation describe_document() { return make_operation("This document", schema::open_object()); }

Operation describe_page() {
  Operation made = make_operation("This document as an HTML page", nullptr);
  made.replies["text/html"] = text_schema;
  return made;
}

}  // namespace pm::server
