#include "fuzz/target.h"
#include "launcher/spawn/agent_delivery.h"
#include "launcher/spawn/last_words.h"

// The input is the output of a login shell and of the remote command.
HVD_FUZZ_TARGET(marked_line) {
  using namespace hvd::launcher;
  if (const auto line = find_marked_line(text, "mark")) {
    HVD_CHECK(line->end > 0 && line->end <= text.size() && text[line->end - 1] == '\n');
    HVD_CHECK(line->words.find('\n') == std::string::npos);
  }
  LastWords words;
  words.add(text);
  words.add(text);
  HVD_CHECK(words.text().find('\n') == std::string::npos && words.text().size() < 2000);
  // A filter gets complete lines, whatever the pieces of the input.
  std::string seen;
  LastWords filtered([&](std::string_view line) {
    seen += line;
    return line.size() % 2 == 0;
  });
  filtered.add(text.substr(0, size / 3));
  filtered.add(text.substr(size / 3));
  HVD_CHECK(text.starts_with(seen) && filtered.text().size() < 2000);
  if (size < 4096) HVD_CHECK(seen.size() == text.rfind('\n') + 1);
}
