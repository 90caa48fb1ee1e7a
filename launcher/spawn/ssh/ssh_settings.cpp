#include "launcher/spawn/ssh/ssh_settings.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kReading = "debug1: Reading configuration data ";

// Settings that libssh does not support. A setting is ignored if its value is harmless.
struct BeyondLibssh {
  std::string_view keyword;
  const char* shown;
  std::string_view harmless;  // a harmless value in addition to "none", "no" and "false"
};
constexpr BeyondLibssh kBeyondLibssh[] = {
    {"proxyjump", "ProxyJump", ""},
    {"proxycommand", "ProxyCommand", ""},
    {"hostbasedauthentication", "HostbasedAuthentication", ""},
    {"certificatefile", "CertificateFile", ""},
    {"canonicalizehostname", "CanonicalizeHostname", ""},
    {"checkhostip", "CheckHostIP", ""},
    {"knownhostscommand", "KnownHostsCommand", ""},
    {"revokedhostkeys", "RevokedHostKeys", ""},
    {"verifyhostkeydns", "VerifyHostKeyDNS", ""},
    {"nohostauthenticationforlocalhost", "NoHostAuthenticationForLocalhost", ""},
    {"pkcs11provider", "PKCS11Provider", ""},
    {"securitykeyprovider", "SecurityKeyProvider", "internal"},
    {"bindaddress", "BindAddress", ""},
    {"bindinterface", "BindInterface", ""},
};

bool is_off(std::string_view value) {
  return value.empty() || value == "none" || value == "no" || value == "false";
}

// `ssh -G` separates several file names by spaces, without quoting.
std::vector<std::string> file_names(std::string_view value, SshSettings& settings) {
  std::vector<std::string> names;
  for (const std::string& name : split(value, ' ')) {
    if (name.empty() || name == "none") continue;
    if (std::string_view("/~$%").find(name[0]) == std::string_view::npos) {
      settings.beyond_libssh = cat("a known-hosts file with a space in its name, '", value, "'");
    }
    names.push_back(name);
  }
  return names;
}

// Keywords with a text value, and keywords with an on/off value.
struct TextKeyword {
  std::string_view keyword;
  std::string SshSettings::*member;
};
constexpr TextKeyword kTexts[] = {
    {"hostname", &SshSettings::host_name},
    {"user", &SshSettings::user},
    {"hostkeyalias", &SshSettings::host_key_alias},
    {"stricthostkeychecking", &SshSettings::strict_host_key_checking},
    {"identityagent", &SshSettings::identity_agent},
    {"addressfamily", &SshSettings::address_family},
    {"proxyjump", &SshSettings::proxy_jump},
    {"ciphers", &SshSettings::ciphers},
    {"macs", &SshSettings::macs},
    {"kexalgorithms", &SshSettings::key_exchanges},
    {"hostkeyalgorithms", &SshSettings::host_key_algorithms},
    {"pubkeyacceptedalgorithms", &SshSettings::public_key_algorithms},
    {"pubkeyacceptedkeytypes", &SshSettings::public_key_algorithms},
};
struct SwitchKeyword {
  std::string_view keyword;
  bool SshSettings::*member;
};
constexpr SwitchKeyword kSwitches[] = {
    {"hashknownhosts", &SshSettings::hashes_names},
    {"compression", &SshSettings::compression},
    {"identitiesonly", &SshSettings::identities_only},
    {"gssapiauthentication", &SshSettings::has_gssapi},
    {"controlpath", &SshSettings::has_control_path},
};

void look_beyond_libssh(SshSettings& settings, std::string_view keyword, std::string_view value) {
  if (keyword == "pubkeyauthentication" && is_off(value)) {
    settings.beyond_libssh = "PubkeyAuthentication no";
  }
  for (const BeyondLibssh& entry : kBeyondLibssh) {
    if (keyword == entry.keyword && !is_off(value) && value != entry.harmless) {
      settings.beyond_libssh = entry.shown;
    }
  }
}

void take(SshSettings& settings, std::string_view keyword, std::string_view value) {
  for (const TextKeyword& text : kTexts) {
    if (keyword == text.keyword) settings.*text.member = value;
  }
  for (const SwitchKeyword& one : kSwitches) {
    if (keyword == one.keyword) settings.*one.member = !is_off(value);
  }
  if (keyword == "port") settings.port = static_cast<int>(parse_int(value).value_or(22));
  if (keyword == "sessiontype") settings.has_session_type = true;
  if (keyword == "identityfile" && value != "none") settings.identity_files.emplace_back(value);
  if (keyword == "certificatefile" && value != "none") {
    settings.certificate_files.emplace_back(value);
  }
  if (keyword == "userknownhostsfile") {
    settings.user_known_hosts_files = file_names(value, settings);
  }
  if (keyword == "globalknownhostsfile") {
    settings.global_known_hosts_files = file_names(value, settings);
  }
  look_beyond_libssh(settings, keyword, value);
}

// Calls `each(keyword, rest)` for the lines of a configuration file, both in lower case.
template <typename Each>
void for_each_line(std::string_view configuration, Each each) {
  for (const std::string& raw : split(configuration, '\n')) {
    const std::string line = to_lower(trim(raw));
    const auto is_alphabetic = [](char c) { return c >= 'a' && c <= 'z'; };
    const auto begin = std::find_if(line.begin(), line.end(), is_alphabetic);
    if (line.empty() || line[0] == '#' || begin == line.end()) continue;
    const auto end = std::find_if_not(
        begin, line.end(), [&](char c) { return is_alphabetic(c) || (c >= '0' && c <= '9'); });
    std::string rest(end, line.end());
    std::replace_if(
        rest.begin(), rest.end(), [](char c) { return c == '=' || c == '"'; }, ' ');
    each(std::string(begin, end), std::string(trim(rest)));
  }
}

std::optional<std::string> token_value(char token, const SshTokens& tokens) {
  switch (token) {
    case '%':
      return "%";
    case 'd':
      return tokens.home;
    case 'h':
      return tokens.remote_host;
    case 'n':
      return tokens.original_host;
    case 'r':
      return tokens.remote_user;
    case 'u':
      return tokens.local_user;
    case 'i':
      return std::to_string(tokens.uid);
    case 'p':
      return std::to_string(tokens.port);
    default:
      return {};
  }
}

}  // namespace

std::optional<SshSettings> parse_ssh_settings(std::string_view output) {
  SshSettings settings;
  for (const std::string& line : split(output, '\n')) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    take(settings, std::string_view(line).substr(0, space),
         trim(std::string_view(line).substr(space)));
  }
  if (settings.host_name.empty()) return {};
  return settings;
}

SshSettings default_ssh_settings(const std::string& host, const std::string& user) {
  SshSettings settings;
  settings.host_name = to_lower(host);
  settings.user = user;
  settings.strict_host_key_checking = "ask";
  settings.host_key_algorithms =
      "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,rsa-sha2-512,"
      "rsa-sha2-256";
  settings.identity_files = {"~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519"};
  settings.user_known_hosts_files = {"~/.ssh/known_hosts", "~/.ssh/known_hosts2"};
  settings.global_known_hosts_files = {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"};
  return settings;
}

std::vector<std::string> configuration_files(std::string_view messages) {
  std::vector<std::string> files;
  for (const std::string& line : split(messages, '\n')) {
    if (line.starts_with(kReading)) files.emplace_back(trim(line.substr(kReading.size())));
  }
  return files;
}

bool depends_on_host(std::string_view configuration) {
  // A token, for example %h, may occur anywhere.
  bool depends = false;
  for_each_line(configuration, [&](const std::string& keyword, const std::string& rest) {
    depends |= rest.find('%') != std::string::npos || keyword == "hostname" ||
               keyword.starts_with("canonical") || (keyword == "host" && rest != "*") ||
               (keyword == "match" && rest != "all" && rest != "final all");
  });
  return depends;
}

bool asks_about_new_keys(std::string_view configuration) {
  bool asks = false;
  for_each_line(configuration, [&](const std::string& keyword, const std::string& rest) {
    asks |= keyword == "stricthostkeychecking" && rest.starts_with("ask");
  });
  return asks;
}

std::string end_of_validity(std::string_view output) {
  for (const std::string& line : split(output, '\n')) {
    const std::string_view words = trim(line);
    if (!words.starts_with("Valid: ")) continue;
    for (const std::string_view before : {" to ", " before "}) {
      const size_t at = words.find(before);
      if (at != std::string_view::npos) return std::string(words.substr(at + before.size()));
    }
  }
  return {};
}

bool is_canonical_name(std::string_view host) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  };
  if (host.empty() || !std::all_of(host.begin(), host.end(), is_plain)) return false;
  // A numeric address never begins with a letter, unless it has a colon.
  if (host[0] >= 'a' && host[0] <= 'z') return true;
  const std::vector<std::string> numbers = split(host, '.');
  return numbers.size() == 4 && std::all_of(numbers.begin(), numbers.end(), [](const auto& text) {
           const auto number = parse_int(text);
           return number && *number >= 0 && *number <= 255 && std::to_string(*number) == text;
         });
}

std::optional<std::string> expand_ssh_path(
    std::string_view path, const SshTokens& tokens,
    const std::function<std::string(std::string_view)>& variable) {
  std::string expanded;
  if (path == "~" || path.starts_with("~/")) {
    expanded = tokens.home;
    path.remove_prefix(1);
  } else if (path.starts_with('~')) {
    return {};
  }
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%') {
      const auto value = i + 1 < path.size() ? token_value(path[i + 1], tokens) : std::nullopt;
      if (!value) return {};
      expanded += *value;
      ++i;
    } else if (path.substr(i).starts_with("${")) {
      const size_t end = path.find('}', i);
      if (end == std::string_view::npos) return {};
      expanded += variable(path.substr(i + 2, end - i - 2));
      i = end;
    } else {
      expanded += path[i];
    }
  }
  return expanded;
}

}  // namespace hvd::launcher
