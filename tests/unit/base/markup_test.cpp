// SPDX-License-Identifier: Apache-2.0
#include "base/markup.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

TEST(Markup, EscapesWhatEndsATextOrAnAttribute) {
  EXPECT_EQ(escape_markup("a < b & \"c\" > d"), "a &lt; b &amp; &quot;c&quot; &gt; d");
  EXPECT_EQ(escape_markup("größer als 3"), "größer als 3");
  EXPECT_EQ(escape_markup(""), "");
}

}  // namespace
}  // namespace pm::base
