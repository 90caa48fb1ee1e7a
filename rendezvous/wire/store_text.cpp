#include "rendezvous/wire/store_text.h"

#include "base/text.h"
#include "net/http.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kSet = "set ";
constexpr std::string_view kRemoved = "removed ";
constexpr std::string_view kMore = "more";
constexpr std::string_view kEnd = "end";
constexpr char kSwapped = '1';
constexpr char kOther = '0';
constexpr char kAbsent = '-';

Status malformed(std::string_view what) {
  return internal_error(cat("the server's answer to ", what, " is malformed"));
}

// Takes the next line, without its '\n'; returns false at the end.
bool take_line(std::string_view* text, std::string_view* line) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return false;
  *line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return true;
}

}  // namespace

std::string to_text(const KeyPage& page) {
  std::string text(page.more ? kMore : kEnd);
  text += '\n';
  for (const std::string& key : page.keys) text.append(net::percent_encode(key)).append("\n");
  return text;
}

Result<KeyPage> parse_keys(ByteView bytes) {
  std::string_view text = as_text(bytes);
  std::string_view line;
  if (!take_line(&text, &line) || (line != kMore && line != kEnd)) return malformed("list");
  KeyPage page;
  page.more = line == kMore;
  while (take_line(&text, &line)) {
    auto key = net::percent_decode(line);
    if (!key.ok()) return malformed("list");
    page.keys.push_back(std::move(*key));
  }
  if (!text.empty()) return malformed("list");
  return page;
}

std::string to_text(const Changes& changes) {
  std::string text = std::to_string(changes.revision);
  text += '\n';
  for (const Changes::Change& change : changes.changes) {
    text.append(change.removed ? kRemoved : kSet).append(net::percent_encode(change.key));
    text += '\n';
  }
  return text;
}

Result<Changes> parse_changes(ByteView bytes) {
  std::string_view text = as_text(bytes);
  std::string_view line;
  if (!take_line(&text, &line)) return malformed("watch");
  const auto revision = parse_int(line);
  if (!revision || *revision < 0) return malformed("watch");
  Changes changes{static_cast<uint64_t>(*revision), {}};
  while (take_line(&text, &line)) {
    const bool removed = line.starts_with(kRemoved);
    if (!removed && !line.starts_with(kSet)) return malformed("watch");
    line.remove_prefix(removed ? kRemoved.size() : kSet.size());
    auto key = net::percent_decode(line);
    if (!key.ok()) return malformed("watch");
    changes.changes.push_back({std::move(*key), removed});
  }
  if (!text.empty()) return malformed("watch");
  return changes;
}

std::string to_text(bool swapped, const Bytes* value) {
  std::string text(1, swapped ? kSwapped : value != nullptr ? kOther : kAbsent);
  if (value != nullptr) text += as_text(*value);
  return text;
}

Result<Swap> parse_swap(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  if (text == std::string_view(&kAbsent, 1)) return Swap{};
  if (text.empty() || (text[0] != kSwapped && text[0] != kOther)) return malformed("swap");
  return Swap{text[0] == kSwapped, to_bytes(text.substr(1))};
}

}  // namespace hvd::rendezvous
