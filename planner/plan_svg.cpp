// SPDX-License-Identifier: Apache-2.0
#include "planner/plan_svg.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/byte_size.h"
#include "base/markup.h"
#include "planner/rank_text.h"
#include "planner/text_format.h"

namespace pm {

using base::escape_markup;
using base::format_bytes;

namespace {

// Lengths in user units, which are pixels when the drawing is not scaled.
constexpr int margin = 12, box_width = 260, box_height = 118, gap_x = 36, gap_y = 14, heading = 26;
constexpr int inner = 10, bar_width = box_width - 2 * inner, bar_height = 14;

struct Term {
  const char* name;
  const char* color;
  int64_t Memory::* bytes;
};
constexpr std::array terms = {Term{"weights", "#3568b0", &Memory::weights}, Term{"KV cache", "#4f9d69", &Memory::kv},
                              Term{"activations", "#d39a2d", &Memory::activations},
                              Term{"communicator", "#8c62ab", &Memory::communicator},
                              Term{"runtime", "#7d7d7d", &Memory::runtime}};

// Colors follow the reader's choice of a light or a dark page.
constexpr const char* style = R"(<style>
text{font:12px sans-serif;fill:#222}.b{font-weight:600}.box{fill:#fff;stroke:#8a8a8a}.free{fill:#e6e6e6}
.panel{fill:none;stroke:#c9c9c9}.arrow{stroke:#8a8a8a;fill:none}
@media(prefers-color-scheme:dark){text{fill:#eee}.box{fill:#1d1f23}.free{fill:#3a3d42}.panel{stroke:#4a4d52}}
</style>)";

class Drawing {
 public:
  Drawing(int width, int height, const std::string& title, const std::string& description) {
    char head[256];
    std::snprintf(head, sizeof head,
                  R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">)",
                  width, height, width, height);
    text_ = head;
    text_ += "<title>" + escape_markup(title) + "</title><desc>" + escape_markup(description) + "</desc>" + style;
  }
  void rectangle(int x, int y, int width, int height, const std::string& attributes) {
    char where[128];
    std::snprintf(where, sizeof where, R"(<rect x="%d" y="%d" width="%d" height="%d" )", x, y, width, height);
    text_ += where + attributes + "/>";
  }
  void words(int x, int y, const std::string& words, bool bold = false) {
    char where[64];
    std::snprintf(where, sizeof where, R"(<text x="%d" y="%d")", x, y);
    text_ += where + std::string(bold ? " class=\"b\">" : ">") + escape_markup(words) + "</text>";
  }
  void arrow(int from, int to, int y) {
    char path[160];
    std::snprintf(path, sizeof path, R"(<path class="arrow" d="M%d %dH%dm-6 -4l6 4l-6 4"/>)", from, y, to);
    text_ += path;
  }
  std::string end() && { return std::move(text_) + "</svg>\n"; }

 private:
  std::string text_;
};

/// Draws a device's memory. Each term that is not 0 is at least one unit wide, and no bar is wider than its device.
void draw_bar(Drawing& drawing, int x, int y, const Memory& memory, int64_t device) {
  drawing.rectangle(x, y, bar_width, bar_height, "class=\"free\"");
  const double scale = bar_width / static_cast<double>(std::max({device, memory.total(), int64_t{1}}));
  int at = x;
  for (const Term& term : terms) {
    const int64_t bytes = memory.*term.bytes;
    if (bytes <= 0) continue;
    const int width = std::clamp(static_cast<int>(static_cast<double>(bytes) * scale + 0.5), 1, x + bar_width - at);
    if (width > 0) drawing.rectangle(at, y, width, bar_height, std::string("fill=\"") + term.color + "\"");
    at += width;
  }
}

/// Cuts a text that is wider than a box, which holds about 44 characters.
std::string fitting(const std::string& text) { return text.size() <= 44 ? text : text.substr(0, 41) + "..."; }

void draw_rank(Drawing& drawing, int x, int y, const Plan& plan, const RankPlan& rank,
               const std::optional<Memory>& measured) {
  drawing.rectangle(x, y, box_width, box_height, "class=\"box\" rx=\"4\"");
  drawing.words(x + inner, y + 18, "rank " + std::to_string(rank.rank), true);
  drawing.words(x + inner + 62, y + 18, fitting(text::heads_of(rank)));
  drawing.words(x + inner, y + 34, fitting(text::layers_of(rank)));
  drawing.words(x + inner, y + 52,
                "planned " + format_bytes(rank.predicted.total()) + " of " + format_bytes(plan.device_memory));
  draw_bar(drawing, x + inner, y + 57, rank.predicted, plan.device_memory);
  drawing.words(x + inner, y + 88, measured ? "measured " + format_bytes(measured->total()) : "not measured");
  if (measured) draw_bar(drawing, x + inner, y + 93, *measured, plan.device_memory);
}

std::string title_of(const Plan& plan) {
  return std::string(name_of(plan.strategy)) + " over " + std::to_string(plan.ranks.size()) +
         (plan.ranks.size() == 1 ? " rank" : " ranks");
}

void draw_legend(Drawing& drawing, int y) {
  int x = margin;
  for (const Term& term : terms) {
    drawing.rectangle(x, y - 10, 10, 10, std::string("fill=\"") + term.color + "\"");
    drawing.words(x + 14, y, term.name);
    x += 28 + 7 * static_cast<int>(std::string_view(term.name).size());
  }
}

}  // namespace

std::string plan_svg(const Plan& plan, const std::vector<std::optional<Memory>>& measured) {
  const int panel_height = heading + plan.tensor * (box_height + gap_y);
  const int width = std::max(2 * margin + plan.pipeline * (box_width + gap_x) - gap_x, 480);
  const int height = 2 * margin + plan.data * (panel_height + gap_y) + 20;
  Drawing drawing(width, height, title_of(plan), plan.message);
  for (const RankPlan& rank : plan.ranks) {
    const int top = margin + rank.dp_rank * (panel_height + gap_y);
    const int x = margin + rank.stage * (box_width + gap_x);
    const int y = top + heading + rank.tensor * (box_height + gap_y);
    if (rank.tensor == 0) {
      const std::string stage = plan.pipeline > 1 ? "stage " + std::to_string(rank.stage) : "all layers";
      drawing.words(x, top + 16, (plan.data > 1 ? "data " + std::to_string(rank.dp_rank) + ", " : "") + stage, true);
      if (rank.stage > 0)
        drawing.arrow(x - gap_x + 4, x - 4, top + heading + plan.tensor * (box_height + gap_y) / 2 - gap_y / 2);
    }
    const auto index = static_cast<size_t>(rank.rank);
    draw_rank(drawing, x, y, plan, rank, index < measured.size() ? measured[index] : std::nullopt);
  }
  draw_legend(drawing, height - margin);
  return std::move(drawing).end();
}

}  // namespace pm
