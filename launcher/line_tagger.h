// Cuts what a rank writes into lines and puts its tag before each, or makes an object of each.
// Pure; any bytes survive.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd::launcher {

// A line that is longer is cut into several, each ended with a newline.
constexpr size_t kMaxLine = 256 * 1024;

enum class LineFormat {
  kText,  // tag and line
  kJson,  // the tag, which begins an object, and the line as its last member
};

class LineTagger {
 public:
  explicit LineTagger(std::string tag, LineFormat format = LineFormat::kText)
      : tag_(std::move(tag)), format_(format) {}

  // For the lines that are complete from now on.
  void set_tag(std::string tag) { tag_ = std::move(tag); }

  // Appends the lines that are complete now. A line ends with "\n", "\r" or "\r\n", which it keeps.
  void feed(std::string_view bytes, std::string& out);
  // What was left without an end gets a newline.
  void finish(std::string& out);

  size_t held() const { return held_.size(); }

 private:
  void hold(std::string_view piece, std::string& out);
  void append(std::string_view line, std::string_view end, std::string& out);

  std::string tag_;
  LineFormat format_;
  std::string held_;  // a line that has no end yet
  bool has_returned_ = false;  // the last byte was a '\r' that ended a line
};

// Whether every {word} in the tag of --tag is one that has a meaning.
Status check_tag(std::string_view tag);

// A JSON text without its quotes; nothing when the bytes are no UTF-8.
std::optional<std::string> json_escaped(std::string_view bytes);

}  // namespace hvd::launcher
