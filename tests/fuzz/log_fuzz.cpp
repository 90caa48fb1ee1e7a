// A log file: parsed lines format to the bytes from which they were parsed.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "fuzz/target.h"
#include "launcher/protocol/record.h"
#include "launcher/state/log_files.h"

HVD_FUZZ_TARGET(log) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (;;) {
    const std::string_view before = bytes;
    const auto said = hvd::launcher::take_lines(bytes);
    if (!said.ok()) HVD_CHECK(!said.error().message().empty());
    if (!said.ok() || !*said) return 0;
    const hvd::Bytes record = hvd::launcher::to_record(**said);
    HVD_CHECK(hvd::as_text(record) == before.substr(0, before.size() - bytes.size()));
  }
}
