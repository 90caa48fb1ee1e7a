#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "launcher/spawn/known_hosts.h"
#include "launcher/spawn/ssh_config.h"

// The first line is a host, the rest a configuration file that includes itself once.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::launcher;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t newline = text.find('\n');
  const SshConfigQuery query{text.substr(0, newline), "", "alice"};
  int includes = 0;
  const auto include = [&](std::string_view) {
    return ++includes > 3 ? std::vector<std::string>() : std::vector<std::string>{text};
  };
  const SshConfig config = read_ssh_config({text, text}, query, include);
  for (const std::string& file : config.identity_files) {
    SshTokens tokens;
    tokens.home = "/home/alice";
    const std::string path =
        expand_ssh_path(file, tokens, [](std::string_view) { return std::string("value"); });
    HVD_CHECK(path.size() <= 16 * file.size() + tokens.home.size());
  }
  HVD_CHECK(matches_pattern(query.host, "*"));
  has_marked_key(text, query.host);
  return 0;
}
