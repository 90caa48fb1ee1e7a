// A log file: parsed lines format to the bytes from which they were parsed.
#include "fuzz/target.h"
#include "launcher/protocol/record.h"
#include "launcher/state/log_files.h"

HVD_FUZZ_TARGET(log) {
  for (;;) {
    const std::string_view before = text;
    const auto said = hvd::launcher::take_lines(text);
    if (!said.ok()) HVD_CHECK(!said.error().message().empty());
    if (!said.ok() || !*said) return;
    const hvd::Bytes record = hvd::launcher::to_record(**said);
    HVD_CHECK(hvd::as_text(record) == before.substr(0, before.size() - text.size()));
  }
}
