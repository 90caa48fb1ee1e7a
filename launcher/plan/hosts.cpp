#include "launcher/plan/hosts.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/names/name_ranges.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool only(std::string_view text, std::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_alphanumeric(c) || more.find(c) != std::string_view::npos;
  });
}

// A name must not begin with '-', which ssh would parse as an option.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 255 && text.front() != '-' && only(text, "._-");
}

bool is_user(std::string_view text) {
  return !text.empty() && text.size() <= 255 && text.front() != '-' && only(text, "._-+$@\\");
}

bool is_ipv6(std::string_view text) {
  const size_t zone = std::min(text.find('%'), text.size());
  unsigned char bytes[16];
  return text.size() <= 128 && only(text, ":.%_-") &&
         ::inet_pton(AF_INET6, std::string(text.substr(0, zone)).c_str(), bytes) == 1;
}

// Parses "[address]", and leaves the text after it.
Result<std::string_view> take_address(std::string_view& text) {
  const size_t end = text.find(']');
  if (end == std::string_view::npos) return invalid_argument("the ']' is missing");
  const std::string_view address = text.substr(1, end - 1);
  text.remove_prefix(end + 1);
  if (!text.empty() && text.front() != ':') {
    return invalid_argument(cat("'", printable(text), "' follows the ']' where ':slots' may"));
  }
  if (!is_ipv6(address)) {
    return invalid_argument(cat("'", printable(address), "' is not an IPv6 address"));
  }
  return address;
}

using LineWords = std::span<const std::string_view>;
using Attributes = std::vector<std::pair<std::string, std::string>>;

// The words after the host: "slots=4" or "slots = 4".
Result<Attributes> parse_attributes(LineWords rest) {
  Attributes attributes;
  for (size_t i = 0; i < rest.size(); ++i) {
    std::string text(rest[i]);
    if (text.find('=') == std::string::npos && i + 1 < rest.size() && rest[i + 1].front() == '=') {
      text += rest[++i];
    }
    if (text.ends_with('=') && i + 1 < rest.size()) text += rest[++i];
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return invalid_argument(
          cat("'", printable(text), "' is not understood; write 'host slots=4'"));
    }
    attributes.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return attributes;
}

enum class WordKind { kSlots, kLimit, kUser, kPort, kIgnored };

// Keys with '-' replaced by '_'. The keys of hydra and Intel MPI that are ignored do not affect slots.
constexpr std::pair<std::string_view, WordKind> kWords[] = {
    {"slots", WordKind::kSlots},     {"cpu", WordKind::kSlots},
    {"count", WordKind::kSlots},     {"slots_max", WordKind::kLimit},
    {"cpu_max", WordKind::kLimit},   {"count_max", WordKind::kLimit},
    {"max_slots", WordKind::kLimit}, {"max_cpu", WordKind::kLimit},
    {"max_count", WordKind::kLimit}, {"user", WordKind::kUser},
    {"username", WordKind::kUser},   {"user_name", WordKind::kUser},
    {"port", WordKind::kPort},       {"binding", WordKind::kIgnored},
    {"ifname", WordKind::kIgnored},  {"ifhn", WordKind::kIgnored},
};

std::optional<WordKind> kind_of(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  for (const auto& [name, kind] : kWords) {
    if (name == key) return kind;
  }
  return {};
}

Status check_misspelling(const std::string& key) {
  static const std::string kOften[] = {"slots", "max_slots", "max-slots", "user"};
  const std::string near = nearest(key, kOften);
  if (near.empty()) return {};
  return invalid_argument(cat("unknown word '", printable(key), "'; did you mean ", near, "?"));
}

Status set_slots(HostItem& item, int slots) {
  if (item.slots != 0 && slots != item.slots) {
    return invalid_argument(
        cat("host ", item.names.front(), " is given both ", item.slots, " and ", slots, " slots"));
  }
  item.slots = slots;
  return {};
}

Result<int> parse_port(std::string_view text) {
  constexpr int64_t kLargest = 65535;
  const auto port = parse_int(text);
  if (port && *port >= 1 && *port <= kLargest) return static_cast<int>(*port);
  return invalid_argument(cat("'", printable(text), "' is not a port, which is 1 to ", kLargest));
}

// Removes comments from a line. `is_open`: whether the line begins, and afterwards ends, within a comment.
std::string without_comments(std::string_view line, bool& is_open) {
  std::string content;
  while (!line.empty()) {
    if (is_open) {
      const size_t end = line.find("*/");
      if (end == std::string_view::npos) break;
      is_open = false;
      line.remove_prefix(end + 2);
      content += ' ';
      continue;
    }
    if (line.front() == '#' || line.starts_with("//")) break;
    if (line.starts_with("/*")) {
      is_open = true;
      line.remove_prefix(2);
      continue;
    }
    content += line.front();
    line.remove_prefix(1);
  }
  return content;
}

}  // namespace

Result<int> parse_slots(std::string_view text) {
  const auto slots = parse_int(text);
  const bool digits = !text.empty() && text.front() >= '0' && text.front() <= '9';
  if (!digits || !slots || *slots < 1) {
    return invalid_argument(
        cat("'", printable(text), "' is not a number of slots, which is 1 or more"));
  }
  if (*slots > kMaxSlotsPerHost) {
    return invalid_argument(cat(printable(text), " slots are more than the ", kMaxSlotsPerHost,
                                " that one host may have"));
  }
  return static_cast<int>(*slots);
}

Status check_host_name(std::string_view name) {
  if (is_name(name) || is_ipv6(name)) return {};
  return invalid_argument(cat("'", printable(name), "' is not a host's name"));
}

Result<HostItem> parse_host_item(std::string_view text) {
  HostItem item;
  if (const size_t at = text.rfind('@'); at != std::string_view::npos) {
    item.user = text.substr(0, at);
    if (!is_user(item.user)) {
      return invalid_argument(cat("'", printable(item.user), "' is not a user's name"));
    }
    text.remove_prefix(at + 1);
  }
  if (text.starts_with('[')) {
    HVD_ASSIGN_OR_RETURN(const std::string_view address, take_address(text));
    item.names.emplace_back(address);
  } else {
    if (std::count(text.begin(), text.end(), ':') > 1 && is_ipv6(text)) {
      return invalid_argument("an IPv6 address needs brackets, as in [fd00::1]:4");
    }
    const size_t end = std::min(text.find(':'), text.size());
    if (end == 0) return invalid_argument("the host's name is missing");
    HVD_ASSIGN_OR_RETURN(item.names, expand_names(text.substr(0, end)));
    for (const std::string& name : item.names) {
      if (is_name(name)) continue;
      return invalid_argument(cat("'", printable(name), "' is not a host's name"));
    }
    text.remove_prefix(end);
  }
  if (text.empty()) return item;
  HVD_ASSIGN_OR_RETURN(item.slots, parse_slots(text.substr(1)));
  return item;
}

Status HostList::add(Host host) {
  total_ += host.slots;
  const auto [known, is_new] = index_.emplace(host.name, hosts_.size());
  if (is_new) {
    hosts_.push_back(std::move(host));
    return {};
  }
  Host& earlier = hosts_[known->second];
  if (earlier.user != host.user) {
    return invalid_argument(cat("host ", host.name, " was given before with ",
                                earlier.user.empty() ? "no user" : cat("user ", earlier.user)));
  }
  if (earlier.port != host.port) {
    return invalid_argument(cat("host ", host.name, " was given before with ",
                                earlier.port == 0 ? "no port" : cat("port ", earlier.port)));
  }
  if (earlier.slots + host.slots > kMaxSlotsPerHost) {
    return invalid_argument(
        cat("host ", host.name, " has more than ", kMaxSlotsPerHost, " slots in all"));
  }
  earlier.slots += host.slots;
  return {};
}

Status HostList::add(const HostItem& item, int slots_alone) {
  for (const std::string& name : item.names) {
    HVD_RETURN_IF_ERROR(add({name, item.user, item.slots ? item.slots : slots_alone, item.port}));
  }
  return {};
}

Result<std::vector<Host>> HostList::take() {
  if (total_ > kMaxSlots) {
    return invalid_argument(cat(total_, " slots in all are more than ", kMaxSlots));
  }
  return std::move(hosts_);
}

Result<std::vector<Host>> parse_hosts(std::string_view list, int slots_alone) {
  HostList hosts;
  bool is_empty = true;
  for (const std::string_view part : split_outside_brackets(list)) {
    for (const std::string_view text : words_of(part)) {
      is_empty = false;
      const auto item = parse_host_item(text);
      const Status status = item.ok() ? hosts.add(*item, slots_alone) : item.status();
      if (!status.ok()) return status.with_context(cat("'", printable(text), "'"));
    }
  }
  if (is_empty) return invalid_argument("the list of hosts is empty; write it as a:4,b:4");
  return hosts.take();
}

HostfileLines::HostfileLines(std::string_view text) : rest_(text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

bool HostfileLines::next() {
  while (!rest_.empty()) {
    ++number_;
    bool is_open = open_comment_ != 0;
    content_ = without_comments(take_line(rest_), is_open);
    if (!is_open) {
      open_comment_ = 0;
    } else if (open_comment_ == 0) {
      open_comment_ = number_;
    }
    content_ = trim(content_);
    if (!content_.empty()) return true;
  }
  return false;
}

Result<HostItem> parse_host_words(LineWords words, std::set<std::string>& unknown) {
  HVD_ASSIGN_OR_RETURN(HostItem item, parse_host_item(words.front()));
  HVD_ASSIGN_OR_RETURN(const Attributes attributes, parse_attributes(words.subspan(1)));
  int limit = 0;
  std::set<std::string> others;
  for (const auto& [key, value] : attributes) {
    const auto kind = kind_of(key);
    if (!kind) {
      HVD_RETURN_IF_ERROR(check_misspelling(key));
      others.insert(printable(key));
    } else if (kind == WordKind::kSlots) {
      HVD_ASSIGN_OR_RETURN(const int slots, parse_slots(value));
      HVD_RETURN_IF_ERROR(set_slots(item, slots));
    } else if (kind == WordKind::kLimit) {
      HVD_ASSIGN_OR_RETURN(limit, parse_slots(value));
    } else if (kind == WordKind::kUser) {
      HVD_ASSIGN_OR_RETURN(const HostItem named, parse_host_item(cat(value, "@x")));
      item.user = named.user;
    } else if (kind == WordKind::kPort) {
      HVD_ASSIGN_OR_RETURN(item.port, parse_port(value));
    }
  }
  if (item.slots == 0) item.slots = limit;
  if (item.slots == 0 && !others.empty()) {
    return invalid_argument(cat("unknown word '", *others.begin(),
                                "' on a line without a number of ", "slots; write 'host slots=4'"));
  }
  if (limit > 0 && limit < item.slots) {
    return invalid_argument(cat("host ", item.names.front(), " has slots=", item.slots,
                                ", more than its max_slots=", limit));
  }
  unknown.merge(others);
  return item;
}

Result<Hostfile> parse_hostfile(std::string_view text, std::string_view path, int slots_alone) {
  HostfileLines lines(text);
  HostList hosts;
  std::set<std::string> unknown;
  Hostfile file;
  bool is_empty = true;
  while (lines.next()) {
    is_empty = false;
    const std::string place = cat("hostfile ", path, ", line ", lines.number());
    std::set<std::string> more;
    const auto item = parse_host_words(words_of(lines.content()), more);
    Status status = item.ok() ? hosts.add(*item, slots_alone) : item.status();
    if (!status.ok()) return status.with_context(place);
    for (const std::string& word : more) {
      if (unknown.insert(word).second) {
        file.warnings.push_back(cat(place, ": the word '", word, "' is unknown and has no effect"));
      }
    }
  }
  if (lines.open_comment() != 0) {
    return invalid_argument(cat("hostfile ", path, ", line ", lines.open_comment(),
                                ": the comment that begins with /* has no */"));
  }
  if (is_empty) return invalid_argument(cat("hostfile ", path, " names no host"));
  auto all = hosts.take();
  if (!all.ok()) return all.status().with_context(cat("hostfile ", path));
  file.hosts = *std::move(all);
  return file;
}

}  // namespace hvd::launcher
