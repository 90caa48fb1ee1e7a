#include "launcher/plan/hostfile.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

using Words = std::span<const std::string_view>;
using Attributes = std::vector<std::pair<std::string, std::string>>;

// The words after the host: "slots=4" or "slots = 4".
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

Result<HostItem> parse_host_words(Words words, std::set<std::string>& unknown) {
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
