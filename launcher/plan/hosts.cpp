#include "launcher/plan/hosts.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>

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

}  // namespace hvd::launcher
