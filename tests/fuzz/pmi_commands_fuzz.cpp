// Commands of a rank's PMI-1 client: refused, or removed completely while the rest stays.
#include "fuzz/target.h"
#include "launcher/pmix/pmi_commands.h"

HVD_FUZZ_TARGET(pmi_commands) {
  using namespace hvd::launcher;
  std::string input(text);
  while (true) {
    const std::string before = input;
    const auto command = take_pmi_command(input);
    if (!command.ok() || !*command) {
      HVD_CHECK(input == before);
      break;
    }
    HVD_CHECK(before.ends_with(input) && input.size() < before.size());
    HVD_CHECK(before[before.size() - input.size() - 1] == '\n');
    for (const auto& [key, value] : (*command)->values) {
      HVD_CHECK((key + value).find_first_of(" \n") == std::string::npos);
      HVD_CHECK((*command)->value(key) == value);
    }
  }
}
