#include "launcher/plan/hostfile.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "base/words.h"

namespace hvd::launcher {
namespace {

using Words = std::span<const std::string_view>;
using Attributes = std::vector<std::pair<std::string, std::string>>;

// The words after the host: "slots=4", also as "slots = 4".
Result<Attributes> parse_attributes(Words rest) {
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

// Words of other launchers' that say nothing here are left; a known one with a slip is not.
Status check_unknown(const std::string& key) {
  static const std::string kKnown[] = {"slots", "max_slots", "max-slots", "user"};
  const std::string near = nearest(key, kKnown);
  if (near.empty()) return {};
  return invalid_argument(cat("unknown word '", printable(key), "'; did you mean ", near, "?"));
}

}  // namespace

Result<HostItem> parse_host_words(Words words) {
  HVD_ASSIGN_OR_RETURN(HostItem item, parse_host_item(words.front()));
  HVD_ASSIGN_OR_RETURN(const Attributes attributes, parse_attributes(words.subspan(1)));
  int max_slots = 0;
  for (const auto& [key, value] : attributes) {
    if (key == "slots") {
      HVD_ASSIGN_OR_RETURN(const int slots, parse_slots(value));
      if (item.slots != 0 && slots != item.slots) {
        return invalid_argument(cat("host ", item.names.front(), " is given both ", item.slots,
                                    " and ", slots, " slots"));
      }
      item.slots = slots;
    } else if (key == "max_slots" || key == "max-slots") {
      HVD_ASSIGN_OR_RETURN(max_slots, parse_slots(value));
    } else if (key == "user") {
      HVD_ASSIGN_OR_RETURN(const HostItem named, parse_host_item(cat(value, "@x")));
      item.user = named.user;
    } else {
      HVD_RETURN_IF_ERROR(check_unknown(key));
    }
  }
  if (max_slots > 0 && max_slots < item.slots) {
    return invalid_argument(cat("host ", item.names.front(), " has slots=", item.slots,
                                ", more than its max_slots=", max_slots));
  }
  return item;
}

Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view path,
                                         int slots_alone) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  HostList hosts;
  bool is_empty = true;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::string_view line = take_line(text);
    const auto parts = words_of(line.substr(0, line.find('#')));
    if (parts.empty()) continue;
    is_empty = false;
    const auto item = parse_host_words(parts);
    Status status = item.status();
    for (size_t i = 0; status.ok() && i < item->names.size(); ++i) {
      status = hosts.add({item->names[i], item->user, item->slots ? item->slots : slots_alone});
    }
    if (!status.ok()) return status.with_context(cat("hostfile ", path, ", line ", number));
  }
  if (is_empty) return invalid_argument(cat("hostfile ", path, " names no host"));
  auto all = hosts.take();
  if (!all.ok()) return all.status().with_context(cat("hostfile ", path));
  return all;
}

}  // namespace hvd::launcher
