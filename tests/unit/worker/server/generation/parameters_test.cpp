// SPDX-License-Identifier: Apache-2.0
// Every row of the table of generation parameters, in every reader that is made from it.
#include "worker/engine/sampling/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/cli/generation_flags.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/generation/generation_params.h"
#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using engine::Dialect;
using engine::EarlyStopping;
using engine::GenerationConfig;
using engine::Parameter;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// The parameter in a configuration, as JSON; null: an optional member without a value.
json value_in(const GenerationConfig& config, const Parameter& parameter) {
  struct ToJson {
    json operator()(EarlyStopping value) const {
      return value == EarlyStopping::Never ? json("never") : json(value == EarlyStopping::Yes);
    }
    json operator()(uint64_t value) const { return static_cast<int64_t>(value); }
    json operator()(const std::optional<int64_t>& value) const { return value ? json(*value) : json(); }
    json operator()(const std::optional<double>& value) const { return value ? json(*value) : json(); }
    json operator()(bool value) const { return value; }
    json operator()(int32_t value) const { return value; }
    json operator()(int64_t value) const { return value; }
    json operator()(double value) const { return value; }
  };
  return std::visit([&](auto member) { return ToJson()(engine::member_of(config, member)); }, parameter.member);
}

struct Values {
  std::vector<json> allowed, refused;
};

/// Values at both bounds, and the nearest ones beyond them.
Values values_of(const Parameter& parameter, Dialect dialect) {
  const engine::ParameterRange range = parameter.range_in(dialect);
  if (const auto* integers = std::get_if<base::IntegerRange>(&range)) {
    Values values{{integers->min, integers->max}, {integers->min + 0.5, "1"}};
    if (integers->min > INT64_MIN) values.refused.emplace_back(integers->min - 1);
    values.refused.emplace_back(static_cast<uint64_t>(integers->max) + 1);
    return values;
  }
  if (const auto* numbers = std::get_if<base::NumberRange>(&range)) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    Values values{{std::nextafter(numbers->min, infinite), numbers->max},
                  {std::nextafter(numbers->min, -infinite), std::nextafter(numbers->max, infinite), "much"}};
    (numbers->above_min ? values.refused : values.allowed).emplace_back(numbers->min);
    return values;
  }
  Values values{{true, false}, {"perhaps"}};
  if (parameter.type() == engine::ParameterType::EarlyStopping) values.allowed.emplace_back("never");
  return values;
}

struct Read {
  GenerationConfig config;
  std::string error;  ///< empty: accepted
};

Read read_request(const Parameter& parameter, Dialect dialect, const json& value) {
  const json body{{parameter.name_in(dialect), value}};
  Fields fields(body);
  GenerationParams params;
  Read read;
  try {
    read_group(fields, parameter.group, dialect, params);
    params.values.apply_to(read.config);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, parameter.name_in(dialect));
    read.error = error.what();
  }
  return read;
}

Read read_flag(const Parameter& parameter, const json& value) {
  std::string flag = std::string("--") + parameter.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  CLI::App app;
  engine::ParameterValues values;
  cli::add_generation_flags(app, values);
  Read read;
  try {
    app.parse({flag + "=" + (value.is_string() ? value.get<std::string>() : value.dump())});
    read.config = cli::generation_config(values);
  } catch (const CLI::ValidationError& error) {
    read.error = error.what();
    EXPECT_THAT(read.error, HasSubstr(flag));
  }
  return read;
}

Read read_file(const Parameter& parameter, const json& value) {
  const test::TempFolder folder;
  std::ofstream(folder.path() / "generation_config.json") << json{{parameter.name, value}};
  Read read;
  try {
    read.config = read_generation_defaults(folder.path()).config;
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    read.error = error.what();
    EXPECT_THAT(read.error, AllOf(HasSubstr("generation_config.json"), HasSubstr(parameter.name)));
  }
  return read;
}

class EveryParameter : public testing::TestWithParam<size_t> {
 protected:
  const Parameter& parameter = engine::generation_parameters()[GetParam()];

  void expect_read(const Read& read, const json& value) const {
    EXPECT_EQ(read.error, "") << value;
    const bool no_top_k = parameter.name == std::string("top_k") && value == -1;
    EXPECT_EQ(value_in(read.config, parameter), no_top_k ? json(0) : value);
  }
  void expect_refused(const Read& read, const json& value, Dialect dialect = Dialect::HuggingFace) const {
    EXPECT_NE(read.error, "") << value;
    if (parameter.type() != engine::ParameterType::Boolean) {
      EXPECT_THAT(read.error, HasSubstr(parameter.allowed(dialect))) << value;
    }
  }
};

TEST_P(EveryParameter, IsAcceptedAtItsBoundsAndRefusedBeyondByEveryReader) {
  const Values values = values_of(parameter, Dialect::HuggingFace);
  for (const json& value : values.allowed) {
    expect_read(read_request(parameter, Dialect::HuggingFace, value), value);
    expect_read(read_flag(parameter, value), value);
    expect_read(read_file(parameter, value), value);
  }
  for (const json& value : values.refused) {
    expect_refused(read_request(parameter, Dialect::HuggingFace, value), value);
    if (value != "1") expect_refused(read_flag(parameter, value), value);  // a flag's value is a text
    if (parameter.name != std::string("temperature") || value != 0) expect_refused(read_file(parameter, value), value);
  }
  if (!parameter.name_in(Dialect::OpenAi)) return;
  const Values openai = values_of(parameter, Dialect::OpenAi);
  for (const json& value : openai.allowed) expect_read(read_request(parameter, Dialect::OpenAi, value), value);
  for (const json& value : openai.refused)
    expect_refused(read_request(parameter, Dialect::OpenAi, value), value, Dialect::OpenAi);
}

TEST_P(EveryParameter, HasAnInitialValueThatIsAllowedOrMeansNone) {
  const json initial = value_in(GenerationConfig(), parameter);
  if (parameter.default_text || initial.is_null()) return;
  expect_read(read_file(parameter, initial), initial);
}

TEST_P(EveryParameter, IsDescribedInOneLine) {
  const std::string description = parameter.description;
  EXPECT_THAT(description, testing::Not(testing::IsEmpty()));
  EXPECT_LE(description.size(), 120u);
  EXPECT_NE(description.back(), '.');
}

INSTANTIATE_TEST_SUITE_P(Parameters, EveryParameter, testing::Range<size_t>(0, engine::generation_parameters().size()),
                         [](const auto& info) {
                           return std::string(engine::generation_parameters()[info.param].name);
                         });

TEST(Parameters, HaveNamesOfTheirOwn) {
  for (const Dialect dialect : {Dialect::HuggingFace, Dialect::OpenAi}) {
    std::set<std::string> names;
    for (const Parameter& parameter : engine::generation_parameters())
      if (const char* name = parameter.name_in(dialect)) {
        EXPECT_TRUE(names.insert(name).second) << name;
      }
  }
}

TEST(Parameters, ThatAreNotSetKeepTheirValues) {
  engine::ParameterValues values;
  values.set(&engine::SamplingParams::top_p, 0.5);
  GenerationConfig config{.sampling = {.temperature = 0.75}, .search = {.num_beams = 3}, .max_length = 9};
  values.apply_to(config);
  EXPECT_EQ(config, (GenerationConfig{
                        .sampling = {.temperature = 0.75, .top_p = 0.5}, .search = {.num_beams = 3}, .max_length = 9}));
  EXPECT_TRUE(values.has(&engine::SamplingParams::top_p));
  EXPECT_EQ(values.get(&engine::SamplingParams::top_p), 0.5);
  EXPECT_FALSE(values.has(&engine::SamplingParams::temperature));
  EXPECT_FALSE(values.get(&engine::SamplingParams::temperature));
  EXPECT_FALSE(values.get(&GenerationConfig::max_length));
}

TEST(GenerationFlags, DefaultsAreThoseOfGenerateInTransformers) {
  CLI::App app;
  engine::ParameterValues values;
  cli::add_generation_flags(app, values);
  app.parse("--do-sample --seed -1");
  const GenerationConfig config = cli::generation_config(values);
  EXPECT_TRUE(config.sampling.do_sample);
  EXPECT_EQ(config.sampling.top_k, 50);
  EXPECT_EQ(config.sampling.seed, UINT64_MAX);
  EXPECT_FALSE(config.ignore_eos);
}

TEST(GenerationFlags, NotANumberIsRefused) {
  for (const char* text : {"--temperature=nan", "--max-time=inf", "--top-p=0.5x", "--seed=9223372036854775808"}) {
    CLI::App app;
    engine::ParameterValues values;
    cli::add_generation_flags(app, values);
    EXPECT_THROW(app.parse(std::string(text)), CLI::ValidationError) << text;
  }
}

TEST(GenerationDefaultsFile, TemperatureZeroIsGreedy) {
  const test::TempFolder folder;
  for (const char* text : {R"({"temperature": 0, "do_sample": true})", R"({"temperature": 0.0})"}) {
    std::ofstream(folder.path() / "generation_config.json") << text;
    const auto sampling = read_generation_defaults(folder.path()).config.sampling;
    EXPECT_FALSE(sampling.do_sample) << text;
    EXPECT_EQ(sampling.temperature, 1) << text;
  }
}

TEST(GenerationDefaultsFile, AListOfForcedIdsIsLeftToTheModel) {
  const test::TempFolder folder;
  std::ofstream(folder.path() / "generation_config.json") << R"({"forced_eos_token_id": [1, 2]})";
  EXPECT_EQ(read_generation_defaults(folder.path()).config.sampling.forced_eos, -1);
}

}  // namespace
}  // namespace pm::server
