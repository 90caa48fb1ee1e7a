// Says where this program writes colors, and adds their sequences to texts. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

constexpr std::string_view kBold = "\x1b[1m", kBoldRed = "\x1b[1;31m";
constexpr std::string_view kRed = "\x1b[31m", kYellow = "\x1b[33m";
// Ends each of them.
constexpr std::string_view kColorEnd = "\x1b[0m";

struct ColorRule {
  bool on_terminals = false;
  bool elsewhere = false;  // also in pipes and files

  bool holds_for(int descriptor) const;
};

// `when`: the value of --color. With "auto", NO_COLOR and TERM=dumb turn colors off.
ColorRule color_rule(std::string_view when = "auto");

// The text in this color. An empty color changes nothing.
std::string colored(std::string_view text, std::string_view color);

}  // namespace hvd::launcher
