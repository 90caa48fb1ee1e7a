#include "launcher/terminal/color.h"

#include <unistd.h>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {

bool ColorRule::holds_for(int descriptor) const {
  return elsewhere || (on_terminals && ::isatty(descriptor) == 1);
}

ColorRule color_rule(std::string_view when) {
  const std::string value = to_lower(when);
  if (value == "always") return {.on_terminals = true, .elsewhere = true};
  const bool is_dumb = environment_variable("TERM").value_or("dumb") == "dumb";
  const bool is_off = !environment_variable("NO_COLOR").value_or("").empty();
  return {.on_terminals = value != "never" && !is_off && !is_dumb};
}

std::string colored(std::string_view text, std::string_view color) {
  return color.empty() ? std::string(text) : cat(color, text, kColorEnd);
}

}  // namespace hvd::launcher
