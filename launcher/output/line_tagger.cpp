#include "launcher/output/line_tagger.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log/log.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

// Marks a text line that exceeds the limit.
constexpr std::string_view kContinues = " [continues]";
constexpr std::string_view kContinued = "[continued] ";

// Returns the number of bytes at the end that may be an incomplete character.
size_t begun_character(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(3, text.size()); ++size) {
    const auto byte = static_cast<unsigned char>(text[text.size() - size]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t whole = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
    return whole > size ? size : 0;
  }
  return 0;
}

}  // namespace

void LineTagger::feed(std::string_view bytes, std::string& out) {
  // Two searches by memchr are faster than one by find_first_of: memchr handles many bytes at once.
  if (bytes.empty()) return;
  size_t begin = 0;
  // The previous bytes ended between '\r' and '\n'.
  if (std::exchange(has_returned_, false) && bytes[0] == '\n') {
    if (format_ == LineFormat::kText) out += '\n';
    begin = 1;
  }
  size_t newline = bytes.find('\n', begin);
  size_t carriage_return = bytes.find('\r', begin);
  while (begin < bytes.size()) {
    const size_t end = std::min(newline, carriage_return);
    if (end == std::string_view::npos) return hold(bytes.substr(begin), out);
    // A progress bar's lone '\r' is shown at once, since a '\n' may never follow.
    const bool both = end + 1 == newline;
    std::string_view line = bytes.substr(begin, end - begin);
    const std::string_view line_end = bytes.substr(end, both ? 2 : 1);
    begin = end + line_end.size();
    if (newline < begin) newline = bytes.find('\n', begin);
    if (carriage_return < begin) carriage_return = bytes.find('\r', begin);
    if (held_.size() + line.size() > kMaxLine) hold(std::exchange(line, {}), out);
    append(line, line_end, out);
    has_returned_ = line_end == "\r" && begin == bytes.size();
  }
}

void LineTagger::hold(std::string_view piece, std::string& out) {
  while (held_.size() + piece.size() > kMaxLine) {
    const size_t room = kMaxLine - held_.size();
    held_.append(piece.substr(0, room));
    piece.remove_prefix(room);
    const size_t begun = begun_character(held_);
    const std::string next = held_.substr(held_.size() - begun);
    held_.resize(held_.size() - begun);
    append({}, "\n", out, true);
    held_ = next;
  }
  held_.append(piece);
}

void LineTagger::finish(std::string& out) {
  if (held_.empty()) return;
  append({}, "\n", out);
  held_.shrink_to_fit();
}

std::string LineTagger::prefix() const { return is_continued_ ? cat(tag_, kContinued) : tag_; }

// Appends the held text, `line`, and the rank's line end, or a newline if the line continues.
void LineTagger::append(std::string_view line, std::string_view end, std::string& out,
                        bool continues) {
  if (format_ == LineFormat::kText) {
    out.append(tag_);
    if (is_continued_) out.append(kContinued);
    out.append(held_).append(line);
    if (continues) out.append(kContinues);
    out.append(end);
  } else {
    held_.append(line);
    out.append(tag_).append(json_text_member(held_));
    if (continues) out.append(",\"continues\":true");
    out.append(end == "\r" ? ",\"end\":\"\\r\"}\n" : "}\n");
  }
  held_.clear();
  is_continued_ = continues;
}

std::string_view take_row(std::string_view& lines) {
  size_t end = lines.find_first_of("\r\n");
  end += lines.substr(end).starts_with("\r\n") ? 2 : 1;
  const std::string_view line = lines.substr(0, end);
  lines.remove_prefix(end);
  return line;
}

std::string without_tag_colors(std::string_view lines) {
  std::string plain;
  plain.reserve(lines.size());
  while (!lines.empty()) {
    const size_t end = std::min(lines.find_first_of("\r\n"), lines.size() - 1) + 1;
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end);
    for (int sequence = 0; sequence < 2; ++sequence) {
      const size_t begin = line.find("\x1b[");
      const size_t last = line.find('m', begin);
      if (begin == std::string_view::npos || last == std::string_view::npos) break;
      plain += line.substr(0, begin);
      line.remove_prefix(last + 1);
    }
    plain += line;
  }
  return plain;
}

Status check_tag(std::string_view tag) {
  constexpr std::string_view kWords[] = {"rank", "host", "local_rank", "stream", "time"};
  return check_placeholders("--tag", tag, kWords);
}

Status check_placeholders(std::string_view flag, std::string_view text,
                          std::span<const std::string_view> known) {
  for (size_t at = 0; (at = text.find('{', at)) != std::string_view::npos; ++at) {
    const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at + 1);
    if (end == at + 1 || end == std::string_view::npos || text[end] != '}') continue;
    const std::string_view word = text.substr(at + 1, end - at - 1);
    const bool is_of_a_shell = at > 0 && text[at - 1] == '$';
    if (is_of_a_shell || std::ranges::find(known, word) != known.end()) continue;
    std::vector<std::string> words;
    for (const std::string_view each : known) words.push_back(cat("{", each, "}"));
    const std::string last = words.back();
    words.pop_back();
    return invalid_argument(
        cat(flag, " knows no {", word, "}; there are ", join(words, ", "), " and ", last));
  }
  return {};
}

}  // namespace hvd::launcher
