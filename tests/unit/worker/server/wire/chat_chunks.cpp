// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/server/wire/chat_chunks.h"

namespace pm::test {
namespace {

using nlohmann::json;

const json usage = {{"prompt_tokens", 9},
                    {"completion_tokens", 11},
                    {"total_tokens", 20},
                    {"prompt_tokens_details", {{"cached_tokens", 4}}},
                    {"completion_tokens_details", {{"reasoning_tokens", 3}}}};

json chunk(const json& delta, const json& finish = nullptr) {
  return {
      {"object", "chat.completion.chunk"},
      {"choices", json::array({{{"index", 0}, {"delta", delta}, {"logprobs", nullptr}, {"finish_reason", finish}}})},
      {"usage", nullptr}};
}

json reasoning(const char* text) { return {{"reasoning", text}, {"reasoning_content", text}}; }

json call(int index, const json& more) {
  json one = {{"index", index}};
  one.update(more);
  return {{"tool_calls", json::array({one})}};
}

}  // namespace

std::vector<json> tool_call_chunks() {
  return {
      chunk({{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}),
      chunk(reasoning("Hm")),
      chunk(reasoning(".")),
      chunk({{"content", "One moment."}}),
      chunk(call(0, {{"id", "call_1"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", ""}}}})),
      chunk(call(0, {{"function", {{"arguments", "{\"city\": "}}}})),
      chunk(call(0, {{"function", {{"arguments", "\"Rom\"}"}}}})),
      chunk(call(1, {{"id", "call_2"}, {"type", "function"}, {"function", {{"name", "clock"}, {"arguments", ""}}}})),
      chunk(json::object(), "tool_calls"),
      {{"object", "chat.completion.chunk"}, {"choices", json::array()}, {"usage", usage}}};
}

json tool_call_completion() {
  const json calls =
      json::array({{{"id", "call_1"},
                    {"type", "function"},
                    {"function", {{"name", "weather"}, {"arguments", "{\"city\": \"Rom\"}"}}}},
                   {{"id", "call_2"}, {"type", "function"}, {"function", {{"name", "clock"}, {"arguments", ""}}}}});
  const json message = {{"role", "assistant"},
                        {"content", "One moment."},
                        {"reasoning", "Hm."},
                        {"reasoning_content", "Hm."},
                        {"tool_calls", calls}};
  return {{"object", "chat.completion"},
          {"choices", json::array({{{"index", 0}, {"message", message}, {"finish_reason", "tool_calls"}}})},
          {"usage", usage}};
}

}  // namespace pm::test
