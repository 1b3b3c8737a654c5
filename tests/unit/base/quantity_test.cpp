// SPDX-License-Identifier: Apache-2.0
#include "base/quantity.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

using Json = nlohmann::json;

TEST(Quantity, ParsesEverySuffix) {
  const std::pair<const char*, int64_t> table[] = {{"80Gi", 85899345920},
                                                   {"2", 2},
                                                   {"1Ki", 1024},
                                                   {"1k", 1000},
                                                   {"1M", 1000000},
                                                   {"1.5Gi", 1610612736},
                                                   {"0.5", 1},
                                                   {"500m", 1},
                                                   {"1500m", 2},
                                                   {"1e3", 1000},
                                                   {"1E3", 1000},
                                                   {"1E", 1000000000000000000},
                                                   {"12e-1", 2},
                                                   {"1u", 1},
                                                   {"1n", 1},
                                                   {"0", 0},
                                                   {"-2", -2},
                                                   {"+2", 2},
                                                   {"7Ei", 8070450532247928832},
                                                   {".5Gi", 536870912},
                                                   {"5.", 5},
                                                   {"0.000000001Gi", 2}};
  for (const auto& [text, value] : table) EXPECT_EQ(parse_quantity(text), value) << text;
  EXPECT_EQ(parse_milli("500m"), 500);
  EXPECT_EQ(parse_milli("2"), 2000);
  EXPECT_EQ(parse_milli("0.1"), 100);
}

TEST(Quantity, RefusesWhatIsNoQuantity) {
  for (const char* text : {"", "-", ".", "Gi", "1 Gi", "1gi", "1KiB", "1e", "1e+", "1e99", "0x10", "1,5", "nan", "8Ei",
                           "99999999999999999999", "1..2", "auto"}) {
    EXPECT_FALSE(parse_quantity(text)) << text;
  }
}

TEST(Quantity, ReadsStringsAndNumbers) {
  EXPECT_EQ(quantity_of(Json("1Ki")), 1024);
  EXPECT_EQ(quantity_of(Json(16)), 16);
  EXPECT_EQ(quantity_of(Json(0.5)), 1);
  EXPECT_FALSE(quantity_of(Json()));
  EXPECT_FALSE(quantity_of(Json(uint64_t{1} << 63)));
}

TEST(Quantity, FormatsTheShortestBinaryForm) {
  EXPECT_EQ(format_quantity(85899345920), "80Gi");
  EXPECT_EQ(format_quantity(1000), "1000");
  EXPECT_EQ(format_quantity(0), "0");
  EXPECT_EQ(format_quantity(1536 * 1024), "1536Ki");
}

}  // namespace
}  // namespace pm::base
