// Splits the output of a rank into lines, and puts a tag before each line or makes a JSON object of
// it. Accepts any bytes. LineRouter owns one per stream. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd::launcher {

// A line that is longer is cut into several, each ended with a newline. All but the last end with
// " [continues]", all but the first begin with "[continued] " behind the tag; as objects, all but the last
// have "continues":true. No character of UTF-8 is cut.
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
  // Ends an unfinished line with a newline.
  void finish(std::string& out);

  // A line without an end: the tag before it, and its text.
  std::string prefix() const;
  const std::string& held() const { return held_; }

 private:
  void hold(std::string_view piece, std::string& out);
  void append(std::string_view line, std::string_view end, std::string& out,
              bool continues = false);

  std::string tag_;
  LineFormat format_;
  std::string held_;           // a line that has no end yet
  bool has_returned_ = false;  // the last byte was a '\r' that ended a line
  bool is_continued_ = false;  // it is the rest of a longer one
};

// The first of whole lines, with its end: "\n", "\r\n", or '\r' behind a bar. Removes it.
std::string_view take_row(std::string_view& lines);
// Removes the color of the tag, its first two escape sequences, from each line. Lines keep their own colors.
std::string without_tag_colors(std::string_view lines);

// Whether every {word} in the tag of --tag is one that has a meaning.
Status check_tag(std::string_view tag);

}  // namespace hvd::launcher
