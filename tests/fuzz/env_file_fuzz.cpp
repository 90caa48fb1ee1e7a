#include "fuzz/target.h"
#include "launcher/plan/environment_choice.h"

HVD_FUZZ_TARGET(env_file) {
  using namespace hvd::launcher;
  EnvironmentChoice choice;
  const hvd::Status status = parse_env_file(text, "f", choice);
  HVD_CHECK(status.ok() || status.message().starts_with("env file f, line "));
  for (const auto& [name, value] : choice.values) {
    HVD_CHECK(!name.empty() && name.find('=') == std::string::npos);
    HVD_CHECK((name + value).find('\0') == std::string::npos);
  }
}
