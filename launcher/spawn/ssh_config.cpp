#include "launcher/spawn/ssh_config.h"

#include <cctype>
#include <optional>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {
namespace {

using Words = std::vector<std::string>;

constexpr int kIncludeDepth = 16;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

// "Keyword value", "Keyword=value", values in double quotes. The keyword comes in lower case.
Words words_of_line(std::string_view line) {
  Words words;
  size_t at = 0;
  while (at < line.size()) {
    if (is_space(line[at]) || (words.size() == 1 && line[at] == '=')) {
      ++at;
      continue;
    }
    if (line[at] == '#') break;
    std::string word;
    bool is_quoted = false;
    for (; at < line.size(); ++at) {
      const char c = line[at];
      if (c == '"') {
        is_quoted = !is_quoted;
      } else if (!is_quoted && (is_space(c) || (words.empty() && c == '='))) {
        break;
      } else {
        word += c;
      }
    }
    words.push_back(words.empty() ? to_lower(word) : word);
  }
  return words;
}

bool is_yes(std::string_view word) {
  const std::string lower = to_lower(word);
  return lower == "yes" || lower == "true" || lower == "always" || lower == "ask";
}

bool is_none(std::string_view word) { return to_lower(word) == "none"; }

// Settings that libssh ignores or cannot follow, and the values that ask for nothing.
struct BeyondLibssh {
  const char* keyword;  // lower case
  const char* shown;
  bool is_switch;       // yes or no; otherwise anything but "none" counts
};
constexpr BeyondLibssh kBeyondLibssh[] = {
    {"proxyjump", "ProxyJump", false},
    {"proxycommand", "ProxyCommand", false},
    {"hostbasedauthentication", "HostbasedAuthentication", true},
    {"certificatefile", "CertificateFile", false},
    {"canonicalizehostname", "CanonicalizeHostname", true},
    {"knownhostscommand", "KnownHostsCommand", false},
    {"revokedhostkeys", "RevokedHostKeys", false},
    {"verifyhostkeydns", "VerifyHostKeyDNS", true},
    {"pkcs11provider", "PKCS11Provider", false},
    {"securitykeyprovider", "SecurityKeyProvider", false},
    {"bindaddress", "BindAddress", false},
    {"bindinterface", "BindInterface", false},
};

class Reader {
 public:
  Reader(const SshConfigQuery& query, const SshConfigSource& include, SshConfig& config)
      : query_(query), include_(include), config_(config) {}

  void read(std::string_view text, int depth) {
    const bool outer = is_active_;
    for (const std::string& line : split(text, '\n')) {
      const Words words = words_of_line(line);
      if (words.size() < 2) continue;
      const Words values(words.begin() + 1, words.end());
      if (words[0] == "host") {
        is_active_ = outer && matches_pattern_list(query_.host, values);
      } else if (words[0] == "match") {
        is_active_ = outer && matches(values);
      } else if (is_active_ && words[0] == "include") {
        if (depth >= kIncludeDepth) continue;
        for (const std::string& pattern : values) {
          for (const std::string& included : include_(pattern)) {
            read(included, depth + 1);
            is_active_ = true;
          }
        }
      } else if (is_active_) {
        take(words[0], values);
      }
    }
    is_active_ = outer;
  }

 private:
  // The criteria of a Match line. What only ssh can tell (the outcome of a command) is noted,
  // unless the criteria before it have already said no.
  bool matches(const Words& criteria) {
    bool is_match = true;
    for (size_t i = 0; i < criteria.size(); ++i) {
      std::string name = to_lower(criteria[i]);
      const bool is_negated = name.starts_with('!');
      if (is_negated) name.erase(0, 1);
      std::optional<bool> holds;
      if (name == "all" || name == "final") {
        // ssh reads everything a second time for "final"; the first value counts there too.
        holds = true;
      } else if (name == "canonical") {
        holds = false;
      } else {
        if (++i == criteria.size()) return false;
        holds = criterion_holds(name, split(criteria[i], ','));
      }
      if (!holds) {
        if (is_match) set_beyond(cat("Match ", name));
        return false;
      }
      is_match = is_match && *holds != is_negated;
    }
    return is_match;
  }

  std::optional<bool> criterion_holds(const std::string& name, const Words& patterns) const {
    if (name == "originalhost") return matches_pattern_list(query_.host, patterns);
    if (name == "host") {
      return matches_pattern_list(config_.host_name.empty() ? query_.host : config_.host_name, patterns);
    }
    if (name == "localuser") return matches_pattern_list(query_.local_user, patterns);
    if (name == "user") {
      const std::string& user = !query_.user.empty() ? query_.user
                                : !user_.empty()     ? user_
                                                     : query_.local_user;
      return matches_pattern_list(user, patterns);
    }
    return {};
  }

  void set_beyond(std::string reason) {
    if (config_.beyond_libssh.empty()) config_.beyond_libssh = std::move(reason);
  }

  // Whether this is the first value of a keyword.
  bool is_first(const std::string& keyword) {
    for (const std::string& seen : seen_) {
      if (seen == keyword) return false;
    }
    seen_.push_back(keyword);
    return true;
  }

  void take(const std::string& keyword, const Words& values) {
    const std::string& value = values[0];
    if (keyword == "identityfile") {
      if (!is_none(value)) config_.identity_files.push_back(value);
      return;
    }
    // ProxyJump and ProxyCommand share one value.
    if (!is_first(keyword == "proxyjump" ? "proxycommand" : keyword)) return;
    if (keyword == "hostname") config_.host_name = value;
    if (keyword == "user") user_ = value;
    if (keyword == "stricthostkeychecking") config_.strict_host_key_checking = to_lower(value);
    if (keyword == "hostkeyalias") config_.host_key_alias = value;
    if (keyword == "identityagent") config_.identity_agent = value;
    if (keyword == "addressfamily") config_.address_family = to_lower(value);
    if (keyword == "userknownhostsfile") config_.known_hosts_files = values;
    if (keyword == "identitiesonly") config_.identities_only = is_yes(value);
    if (keyword == "gssapiauthentication") config_.has_gssapi = is_yes(value);
    if (keyword == "controlpath") config_.has_control_path = !is_none(value);
    for (const BeyondLibssh& entry : kBeyondLibssh) {
      if (keyword == entry.keyword && (entry.is_switch ? is_yes(value) : !is_none(value))) {
        set_beyond(entry.shown);
      }
    }
  }

  const SshConfigQuery& query_;
  const SshConfigSource& include_;
  SshConfig& config_;
  bool is_active_ = true;
  std::string user_;
  Words seen_;
};

std::optional<std::string> token_value(char token, const SshTokens& tokens) {
  switch (token) {
    case '%': return "%";
    case 'd': return tokens.home;
    case 'h': return tokens.remote_host;
    case 'n': return tokens.original_host;
    case 'r': return tokens.remote_user;
    case 'u': return tokens.local_user;
    case 'i': return std::to_string(tokens.uid);
    case 'p': return std::to_string(tokens.port);
    case 'l': return tokens.local_host;
    case 'L': return tokens.local_host.substr(0, tokens.local_host.find('.'));
    default: return {};
  }
}

}  // namespace

SshConfig read_ssh_config(const std::vector<std::string>& files, const SshConfigQuery& query,
                          const SshConfigSource& include) {
  SshConfig config;
  Reader reader(query, include, config);
  for (const std::string& text : files) reader.read(text, 0);
  return config;
}

bool matches_pattern(std::string_view name, std::string_view pattern) {
  // The last * and where it began to match: only that one ever needs to be tried again.
  size_t star = std::string_view::npos, star_name = 0, n = 0, p = 0;
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || lower(pattern[p]) == lower(name[n]))) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matches_pattern_list(std::string_view name, const std::vector<std::string>& patterns) {
  bool is_match = false;
  for (const std::string& pattern : patterns) {
    if (pattern.starts_with('!')) {
      if (matches_pattern(name, std::string_view(pattern).substr(1))) return false;
    } else if (matches_pattern(name, pattern)) {
      is_match = true;
    }
  }
  return is_match;
}

std::string expand_ssh_path(std::string_view path, const SshTokens& tokens,
                            const std::function<std::string(std::string_view)>& variable) {
  std::string expanded;
  if (path == "~" || path.starts_with("~/")) {
    expanded = tokens.home;
    path.remove_prefix(1);
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
