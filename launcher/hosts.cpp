#include "launcher/hosts.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxHostfileSize = 64 << 20;
constexpr int kMaxSlots = 1 << 24;
constexpr std::string_view kSpace = " \t\r\v\f";

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool only(std::string_view text, std::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_alphanumeric(c) || more.find(c) != std::string_view::npos;
  });
}

// A leading '-' would be an option to ssh.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 255 && text.front() != '-' && only(text, "._-");
}

bool is_user(std::string_view text) {
  return !text.empty() && text.size() <= 255 && text.front() != '-' && only(text, "._-+$@\\");
}

bool is_ipv6(std::string_view text) {
  return text.size() <= 128 && text.find(':') != std::string_view::npos && only(text, ":.%_-");
}

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

struct Item {
  Host host;
  bool has_slots = false;
};

// "[user@]name[:slots]" or "[user@][address][:slots]".
Result<Item> parse_item(std::string_view text) {
  Item item;
  if (const size_t at = text.rfind('@'); at != std::string_view::npos) {
    item.host.user = text.substr(0, at);
    if (!is_user(item.host.user)) {
      return invalid_argument(cat("'", printable(item.host.user), "' is not a user's name"));
    }
    text.remove_prefix(at + 1);
  }
  std::string_view name = text;
  std::optional<std::string_view> slots;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return invalid_argument("the ']' is missing");
    name = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') {
      return invalid_argument(cat("'", printable(rest), "' follows the ']' where ':slots' may"));
    }
    if (!rest.empty()) slots = rest.substr(1);
    if (!is_ipv6(name)) {
      return invalid_argument(cat("'", printable(name), "' is not an IPv6 address"));
    }
  } else {
    if (std::count(text.begin(), text.end(), ':') > 1 && is_ipv6(text)) {
      return invalid_argument("an IPv6 address needs brackets, as in [fd00::1]:4");
    }
    const size_t colon = text.find(':');
    name = text.substr(0, colon);
    if (colon != std::string_view::npos) slots = text.substr(colon + 1);
    if (name.empty()) return invalid_argument("the host's name is missing");
    if (!is_name(name)) {
      return invalid_argument(cat("'", printable(name), "' is not a host's name"));
    }
  }
  item.host.name = name;
  if (slots) {
    HVD_ASSIGN_OR_RETURN(item.host.slots, parse_slots(*slots));
    item.has_slots = true;
  }
  return item;
}

// Adds to an earlier mention of the same host.
Status add_host(std::vector<Host>& hosts, Host host) {
  const auto known = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const Host& other) { return other.name == host.name; });
  if (known == hosts.end()) {
    hosts.push_back(std::move(host));
    return {};
  }
  if (known->user != host.user) {
    return invalid_argument(cat("host ", host.name, " was given before with ",
                                known->user.empty() ? "no user" : cat("user ", known->user)));
  }
  if (known->slots + host.slots > kMaxSlotsPerHost) {
    return invalid_argument(cat("host ", host.name, " has more than ", kMaxSlotsPerHost,
                                " slots in all"));
  }
  known->slots += host.slots;
  return {};
}

Status check_total(const std::vector<Host>& hosts) {
  int64_t total = 0;
  for (const Host& host : hosts) total += host.slots;
  if (total <= kMaxSlots) return {};
  return invalid_argument(cat(total, " slots in all are more than ", kMaxSlots));
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  for (;;) {
    const size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return found;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(kSpace), line.size());
    found.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

// The words after the host: "slots=4", also as "slots = 4".
Result<std::vector<std::pair<std::string, std::string>>> parse_attributes(
    std::span<const std::string_view> rest) {
  std::vector<std::pair<std::string, std::string>> attributes;
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

Result<Host> parse_line(std::span<const std::string_view> line) {
  HVD_ASSIGN_OR_RETURN(Item item, parse_item(line.front()));
  HVD_ASSIGN_OR_RETURN(const auto attributes, parse_attributes(line.subspan(1)));
  int max_slots = 0;
  for (const auto& [key, value] : attributes) {
    if (key == "slots") {
      HVD_ASSIGN_OR_RETURN(const int slots, parse_slots(value));
      if (item.has_slots && slots != item.host.slots) {
        return invalid_argument(cat("host ", item.host.name, " is given both ", item.host.slots,
                                    " and ", slots, " slots"));
      }
      item.host.slots = slots;
      item.has_slots = true;
    } else if (key == "max_slots" || key == "max-slots") {
      HVD_ASSIGN_OR_RETURN(max_slots, parse_slots(value));
    }
  }
  if (max_slots > 0 && max_slots < item.host.slots) {
    return invalid_argument(cat("host ", item.host.name, " has slots=", item.host.slots,
                                ", more than its max_slots=", max_slots));
  }
  return item.host;
}

}  // namespace

Result<std::vector<Host>> parse_hosts(std::string_view list) {
  std::vector<Host> hosts;
  if (trim(list).empty()) {
    return invalid_argument("the list of hosts is empty; write it as a:4,b:4");
  }
  for (const std::string& part : split(list, ',')) {
    const std::string_view text = trim(part);
    if (text.empty()) {
      return invalid_argument(cat("an item of '", printable(list), "' is empty; write the list as ",
                                  "a:4,b:4"));
    }
    auto item = parse_item(text);
    Status status = item.ok() ? add_host(hosts, std::move(item->host)) : item.status();
    if (!status.ok()) return status.with_context(cat("'", printable(text), "'"));
  }
  HVD_RETURN_IF_ERROR(check_total(hosts));
  return hosts;
}

Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<Host> hosts;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const auto parts = words(line.substr(0, line.find('#')));
    if (parts.empty()) continue;
    auto host = parse_line(parts);
    Status status = host.ok() ? add_host(hosts, *std::move(host)) : host.status();
    if (!status.ok()) return status.with_context(cat("hostfile ", path, ", line ", number));
  }
  if (hosts.empty()) return invalid_argument(cat("hostfile ", path, " names no host"));
  HVD_RETURN_IF_ERROR(check_total(hosts).with_context(cat("hostfile ", path)));
  return hosts;
}

Result<std::vector<Host>> read_hostfile(const std::string& path) {
  const std::string what = cat("cannot read hostfile ", path);
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error(what, errno);
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t size = ::read(file.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return system_error(what, errno);
    if (size == 0) break;
    text.append(buffer, static_cast<size_t>(size));
    if (text.size() > kMaxHostfileSize) {
      return invalid_argument(cat(what, ": it is larger than ", kMaxHostfileSize >> 20, " MiB"));
    }
  }
  return parse_hostfile(text, path);
}

}  // namespace hvd::launcher
