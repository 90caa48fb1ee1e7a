#include "base/text.h"
#include "fuzz/target.h"
#include "launcher/spawn/ssh/ssh_settings.h"

// The output of `ssh -v -G`, and the configuration files that it names.
HVD_FUZZ_TARGET(ssh_settings) {
  using namespace hvd::launcher;
  const auto settings = parse_ssh_settings(text);
  if (settings) {
    HVD_CHECK(!settings->host_name.empty());
    SshTokens tokens;
    tokens.home = "/home/alice";
    for (const std::string& file : settings->identity_files) {
      const auto path =
          expand_ssh_path(file, tokens, [](std::string_view) { return std::string("value"); });
      HVD_CHECK(!path || path->size() <= 16 * file.size() + tokens.home.size());
    }
  }
  for (const std::string& file : configuration_files(text)) HVD_CHECK(file.size() < text.size());
  // Other lines must not hide the names of configuration files.
  HVD_CHECK(depends_on_host(hvd::cat(text, "\nHost a\n")));
  HVD_CHECK(asks_about_new_keys(hvd::cat(text, "\nStrictHostKeyChecking ask\n")));
  if (is_canonical_name(text)) HVD_CHECK(text == hvd::to_lower(text));
}
