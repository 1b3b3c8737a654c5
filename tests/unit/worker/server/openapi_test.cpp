// SPDX-License-Identifier: Apache-2.0
// GET /openapi.json against the parsers: every field that one accepts is in the document and the other way round, with
// its type and its limits.
#include "worker/server/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/unit/support/repository.h"
#include "tests/unit/worker/server/support/task_test_server.h"
#include "worker/server/http/api_error.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

/// Outputs of the shapes that the task's model has.
FakeEngine::ForwardFunction outputs_of(policy::Task task, int64_t labels) {
  return [=](const engine::ForwardRequest& request) {
    const auto& shape = request.inputs.at("input_ids").shape;
    Arrays outputs;
    for (const auto& name : request.outputs.empty() ? std::vector<std::string>{"logits"} : request.outputs) {
      std::vector<int64_t> wanted{shape[0], labels};
      if (name == "last_hidden_state")
        wanted = {shape[0], shape[1], 4};
      else if (name == "pooler_output")
        wanted = {shape[0], 4};
      else if (name == "prediction_logits")
        wanted = {shape[0], shape[1], 12};
      else if (name == "start_logits" || name == "end_logits")
        wanted = shape;
      else if (task == policy::Task::MultipleChoice)
        wanted = {1, shape[1]};
      else if (task == policy::Task::ClassifyTokens)
        wanted = {shape[0], shape[1], labels};
      int64_t count = 1;
      for (int64_t size : wanted) count *= size;
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 5));
      outputs[name] = floats(wanted, values);
    }
    return outputs;
  };
}

struct Kind {
  const char* name;
  server::Capabilities can;
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const char* task : {"classify", "classify-tokens", "multiple-choice", "question-answering", "fill-mask",
                           "next-sentence", "generate"}) {
    auto can = capabilities_of(task);
    can.labels = {"B-X", "O", "I-X"};
    all.push_back({task, can});
  }
  all[4].can = embedding_capabilities();
  all[4].can.task = policy::Task::FillMask;
  all[4].can.vocabulary_scores = "prediction_logits";
  all[5].can.next_sentence = "logits";
  all[6].can.text = {"last_hidden_state", {server::Pooling::Last}};
  all[6].can.states = "last_hidden_state";
  all.push_back({"embed", embedding_capabilities()});
  all.push_back({"cross-encoder", capabilities_of("classify")});
  all.back().can.labels = {"relevance"};
  return all;
}

struct Documented : testing::TestWithParam<size_t> {
  Documented()
      : kind(kinds()[GetParam()]), tasked(kind.can, true, [](auto& options) { options.strict_requests = true; }) {
    tasked.engine.answer_forward(
        outputs_of(kind.can.task, kind.name == std::string("next-sentence")
                                      ? 2
                                      : static_cast<int64_t>(std::max<size_t>(kind.can.labels.size(), 1))));
    document = json::parse(tasked.client().Get("/openapi.json")->body);
  }
  /// Path and operation of each POST with a JSON body.
  std::vector<std::pair<std::string, json>> posts() const {
    std::vector<std::pair<std::string, json>> all;
    for (const auto& [path, methods] : document["paths"].items())
      if (methods.contains("post"))
        all.emplace_back(path, methods["post"]["requestBody"]["content"]["application/json"]);
    return all;
  }
  /// The error of a field, "" when the field is not what is wrong.
  std::string fault(const std::string& path, json body, const std::string& field, const json& value) const {
    body[field] = value;
    const auto result = tasked.post(path, body);
    EXPECT_TRUE(result);
    if (!result || result->status == 200) return "";
    EXPECT_LT(result->status, 500) << body;
    const auto error = json::parse(result->body)["error"];
    const std::string param = error["param"].is_string() ? error["param"].get<std::string>() : "";
    return param == field || param.starts_with(field + "[") || param.starts_with(field + ".")
               ? error["message"].get<std::string>()
               : "";
  }
  Kind kind;
  TaskTestServer tasked;
  json document;
};

TEST_P(Documented, RoutesAreThoseThatTheModelServes) {
  const std::string known = json::parse(tasked.client().Get("/nothing")->body)["error"]["message"];
  const std::regex route(R"((GET|POST|DELETE) (/[^ ,]*))");
  std::set<std::string> served, documented;
  for (auto found = std::sregex_iterator(known.begin(), known.end(), route); found != std::sregex_iterator(); ++found) {
    const std::string method = (*found)[1], path = (*found)[2];
    const auto answer = method == "POST"     ? tasked.client().Post(path, "{}", "application/json")
                        : method == "DELETE" ? tasked.client().Delete(path)
                                             : tasked.client().Get(path);
    const bool refused = answer->status == 404 && json::parse(answer->body)["error"]["code"] == "not_served";
    if (!refused) served.insert(method + " " + std::regex_replace(path, std::regex(R"(\*)"), ""));
  }
  for (const auto& [path, methods] : document["paths"].items())
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_FALSE(operation["summary"].get<std::string>().empty()) << path;
      const std::string name = method == "post" ? "POST " : method == "delete" ? "DELETE " : "GET ";
      documented.insert(name + std::regex_replace(path, std::regex(R"(\{[^}]*\})"), ""));
    }
  EXPECT_EQ(served, documented);
  for (const std::string own : json::parse(tasked.client().Get("/")->body)["routes"])
    EXPECT_TRUE(documented.contains(std::regex_replace(own, std::regex(R"(\*)"), ""))) << own;
}

TEST_P(Documented, ExamplesAreAnswered) {
  for (const auto& [path, content] : posts()) {
    ASSERT_TRUE(content.contains("example")) << path;
    const auto result = tasked.post(path, content["example"]);
    EXPECT_EQ(result->status, 200) << path << content["example"] << result->body;
  }
}

TEST_P(Documented, FieldsAreThoseThatTheParserKnows) {
  for (const auto& [path, content] : posts()) {
    json body = content["example"];
    body["no_such_field"] = 1;
    const std::string message = error_of(tasked.post(path, body), 400)["message"];
    std::set<std::string> parsed, documented;
    std::istringstream words(message.substr(message.find("allowed: ") + 9));
    for (std::string word; std::getline(words >> std::ws, word, ',');) parsed.insert(word);
    for (const auto& [name, schema] : content["schema"]["properties"].items()) documented.insert(name);
    EXPECT_EQ(parsed, documented) << path;
    if (!content["schema"]["properties"].contains("parameters")) continue;
    body.erase("no_such_field");
    body["parameters"] = {{"no_such_field", 1}};
    EXPECT_THAT(error_of(tasked.post(path, body), 400)["message"].get<std::string>(), HasSubstr("no_such_field"))
        << path;
  }
}

TEST_P(Documented, TypesAndLimitsAreThoseOfTheParser) {
  for (const auto& [path, content] : posts()) {
    const json example = content["example"];
    for (const auto& [name, schema] : content["schema"]["properties"].items()) {
      const std::string where = path + " " + name + " " + schema.dump();
      const auto is = [&schema = schema](const char* type) {
        return schema.value("type", json()) == type || schema.value("type", json()) == json({type, "null"});
      };
      const bool required = content["schema"].contains("required") &&
                            content["schema"]["required"].dump().find("\"" + name + "\"") != std::string::npos;
      if (!required && !example.contains(name)) {
        EXPECT_EQ(fault(path, example, name, nullptr), "") << where;
      }
      if (schema.contains("enum")) {
        for (const json& word : schema["enum"]) EXPECT_EQ(fault(path, example, name, word), "") << where << word;
        if (name != "model") {
          EXPECT_NE(fault(path, example, name, "no such word"), "") << where;
        }
      } else if (is("boolean")) {
        for (bool value : {true, false}) EXPECT_EQ(fault(path, example, name, value), "") << where;
        EXPECT_NE(fault(path, example, name, "true"), "") << where;
      } else if (is("integer")) {
        const auto least = schema["minimum"].get<int64_t>();
        EXPECT_EQ(fault(path, example, name, least), "") << where;
        if (least > INT64_MIN) {
          EXPECT_NE(fault(path, example, name, least - 1), "") << where;
        }
        if (const auto most = schema.value("maximum", INT64_MAX); most < INT64_MAX) {
          EXPECT_NE(fault(path, example, name, most + 1), "") << where;
        }
        EXPECT_NE(fault(path, example, name, 1.5), "") << where;
      } else if (is("number")) {
        const double least = schema.contains("minimum") ? schema["minimum"].get<double>()
                                                        : schema["exclusiveMinimum"].get<double>(),
                     most = schema["maximum"].get<double>();
        EXPECT_EQ(fault(path, example, name, least),
                  schema.contains("minimum") ? "" : fault(path, example, name, least))
            << where;
        EXPECT_EQ(fault(path, example, name, most), "") << where;
        if (schema.contains("exclusiveMinimum")) {
          EXPECT_NE(fault(path, example, name, least), "") << where;
        }
        EXPECT_NE(fault(path, example, name, least - 0.5), "") << where;
        EXPECT_NE(fault(path, example, name, most + 0.5), "") << where;
      } else if (is("string")) {
        EXPECT_NE(fault(path, example, name, 5), "") << where;
        if (schema.contains("minLength")) {
          EXPECT_NE(fault(path, example, name, ""), "") << where;
        }
      }
    }
  }
}

TEST_P(Documented, TheKeysOfTheDocumentFollowFromTheServer) {
  EXPECT_EQ(document["openapi"], "3.1.0");
  std::set<std::string> ids;
  for (const auto& [path, methods] : document["paths"].items())
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_TRUE(ids.insert(operation["operationId"]).second) << path;
      EXPECT_FALSE(operation["responses"].contains("401"));
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Documented, testing::Range<size_t>(0, kinds().size()), [](const auto& info) {
  std::string name = kinds()[info.param].name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Docs, ThePageShowsEveryRouteAndLoadsNothing) {
  TaskTestServer tasked(capabilities_of("classify"));
  const auto page = tasked.client().Get("/docs");
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  const auto document = json::parse(tasked.client().Get("/openapi.json")->body);
  for (const auto& [path, methods] : document["paths"].items()) EXPECT_THAT(page->body, HasSubstr(path));
  for (const char* outside : {"<script", "http://", "https://", " src="})
    EXPECT_EQ(page->body.find(outside), std::string::npos) << outside;
}

TEST(ErrorCodes, AreTheOnesThatTheSourcesThrow) {
  std::set<std::string> listed, thrown;
  for (const auto& code : server::error_codes()) EXPECT_TRUE(listed.insert(code.code).second) << code.code;
  const std::regex thrower(R"re((?:ApiError(?: \w+)?\([^"]*|unavailable\()"(\w+)",)re"),
      refusal(R"re(return (?:all \? "" : )?"(draining|loading|rank_lost)")re");
  for (const auto& file : std::filesystem::recursive_directory_iterator(repository() / "worker/server")) {
    if (file.path().extension() != ".cpp") continue;
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const auto& pattern : {thrower, refusal})
      for (auto found = std::sregex_iterator(text.begin(), text.end(), pattern); found != std::sregex_iterator();
           ++found)
        thrown.insert((*found)[1]);
  }
  thrown.erase("client_gone");                             // for the log alone
  thrown.insert({"malformed_request", "internal_error"});  // of a status, see http.cpp
  EXPECT_EQ(thrown, listed);
}

}  // namespace
}  // namespace pm::test
