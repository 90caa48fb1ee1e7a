#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "launcher/spawn/agent_delivery.h"
#include "launcher/spawn/last_words.h"

// The input is the output of a login shell and of the remote command.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::launcher;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto line = find_marked_line(text, "mark")) {
    HVD_CHECK(line->end > 0 && line->end <= text.size() && text[line->end - 1] == '\n');
    HVD_CHECK(line->words.find('\n') == std::string::npos);
  }
  LastWords words;
  words.add(text);
  words.add(text);
  HVD_CHECK(words.text().find('\n') == std::string::npos && words.text().size() < 2000);
  return 0;
}
