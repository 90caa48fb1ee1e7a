#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "launcher/output/rank_errors.h"

// The input is what a failed rank wrote on its standard error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::launcher;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string shown = last_lines(text);
  HVD_CHECK(shown.size() <= text.size() + 1 && (shown.empty() || shown.back() == '\n'));
  HVD_CHECK(shown.empty() == text.empty());
  const std::string advice =
      advice_on(shown, {.interpreter = "/usr/bin/python3", .lacks_input = true});
  HVD_CHECK(advice.empty() || (advice.starts_with("; ") && advice.find('\n') == std::string::npos));
  return 0;
}
