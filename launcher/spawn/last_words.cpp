#include "launcher/spawn/last_words.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kKept = 4096;
constexpr size_t kShownLines = 4;
constexpr size_t kShownBytes = 200;  // of a line

// srun prints this text for --cpu-bind=none on a cluster without CPU binding: the text is not the reason of a failure.
constexpr std::string_view kOfNoBinding = "cluster configuration lacks support for cpu binding";

}  // namespace

void LastWords::add(std::string_view text) {
  tail_ += text;
  for (size_t end; filter_ && (end = tail_.find('\n', filtered_)) != std::string::npos;) {
    const size_t size = end + 1 - filtered_;
    if (filter_(std::string_view(tail_).substr(filtered_, size))) {
      filtered_ += size;
    } else {
      tail_.erase(filtered_, size);
    }
  }
  if (tail_.size() <= kKept) return;
  const size_t excess = tail_.size() - kKept;
  tail_.erase(0, excess);
  filtered_ -= std::min(filtered_, excess);
}

std::string LastWords::last_lines() const {
  std::vector<std::string> lines;
  for (const std::string& line : split(tail_, '\n')) {
    const std::string_view words = trim(line);
    if (words.find(kOfNoBinding) != std::string_view::npos) continue;
    if (!words.empty()) lines.push_back(printable(words, kShownBytes));
  }
  if (lines.size() > kShownLines) lines.erase(lines.begin(), lines.end() - kShownLines);
  return join(lines, "; ");
}

std::string LastWords::text() const {
  std::string text = last_lines();
  std::string end;
  if (!signal_.empty()) {
    end = cat("was ended by signal ", signal_);
  } else if (code_.value_or(0) != 0) {
    end = cat("ended with exit code ", *code_);
  }
  if (!text.empty() && !end.empty()) text += "; ";
  return text + end;
}

}  // namespace hvd::launcher
