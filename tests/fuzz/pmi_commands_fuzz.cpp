// Commands of a rank's PMI-1 client: refused, or removed completely while the rest stays.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "fuzz/target.h"
#include "launcher/pmix/pmi_commands.h"

HVD_FUZZ_TARGET(pmi_commands) {
  using namespace hvd::launcher;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  while (true) {
    const std::string before = bytes;
    const auto command = take_pmi_command(bytes);
    if (!command.ok() || !*command) {
      HVD_CHECK(bytes == before);
      break;
    }
    HVD_CHECK(before.ends_with(bytes) && bytes.size() < before.size());
    HVD_CHECK(before[before.size() - bytes.size() - 1] == '\n');
    for (const auto& [key, value] : (*command)->values) {
      HVD_CHECK((key + value).find_first_of(" \n") == std::string::npos);
      HVD_CHECK((*command)->value(key) == value);
    }
  }
  return 0;
}
