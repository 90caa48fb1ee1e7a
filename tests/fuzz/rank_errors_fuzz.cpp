#include "fuzz/target.h"
#include "launcher/output/traceback.h"
#include "launcher/output/traceback_folder.h"

// The input is a failed rank's standard error.
HVD_FUZZ_TARGET(rank_errors) {
  using namespace hvd::launcher;
  const std::string shown = last_lines(text);
  HVD_CHECK(shown.size() <= text.size() + 1 && (shown.empty() || shown.back() == '\n'));
  HVD_CHECK(shown.empty() == text.empty());
  const std::string advice =
      advice_on(shown, {.interpreter = "/usr/bin/python3", .lacks_input = true});
  HVD_CHECK(advice.empty() || (advice.starts_with("; ") && advice.find('\n') == std::string::npos));
  const size_t tag = size == 0 ? 0 : data[0] % 16;
  HVD_CHECK(last_lines(text, tag).size() <= text.size() + 1);
  HVD_CHECK(exception_of(text, tag).size() <= text.size());
  // If the rank succeeds, no held line is lost.
  TracebackFolder folder;
  std::string passed = folder.add(0, text, tag, false, {});
  folder.ended(0, {.is_success = true});
  folder.output_ended(0);
  for (const auto& each : folder.take({}, true)) passed += each.lines;
  HVD_CHECK(passed == text);
  folder.add(1, text, tag, false, {});
  folder.ended(1, {.is_failure = true});
  folder.output_ended(1);
  folder.take({}, true);
}
