#include "launcher/output/report.h"

#include <doctest/doctest.h>

#include "base/log/log.h"

namespace hvd::launcher {

TEST_CASE("the launcher's name is bold, and red before an error, where colors are wanted") {
  color_messages("Always");
  CHECK(shown_line("no", Tone::kError) == "\x1b[1;31mhorovodrun:\x1b[0m no\n");
  CHECK(shown_line("yes\nhorovodrun: more") == "\x1b[1mhorovodrun:\x1b[0m yes\nhorovodrun: more\n");
  CHECK(line_of("no") == "horovodrun: no\n");
  log::set_format(log::Format::kJson);
  CHECK(shown_line("no", Tone::kError).find('\x1b') == std::string::npos);
  log::set_format(log::Format::kText);
  color_messages("never");
  CHECK(shown_line("no", Tone::kError) == "horovodrun: no\n");
  color_messages("auto");
}

}  // namespace hvd::launcher
