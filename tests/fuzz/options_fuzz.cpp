// The input is a command line, its words separated by newlines.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/text.h"
#include "launcher/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto options = hvd::launcher::parse_options(hvd::split(text, '\n'));
  HVD_CHECK(options.ok() || !options.status().message().empty());
  return 0;
}
