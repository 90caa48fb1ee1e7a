#include "fuzz/target.h"
#include "launcher/cli/config_file.h"

HVD_FUZZ_TARGET(config) {
  hvd::Settings settings;
  const hvd::Status status = hvd::launcher::apply_config(text, "f", settings);
  HVD_CHECK(status.ok() || status.message().starts_with("config file f"));
}
