// Splits the output of a rank into lines, and puts a tag before each line or makes it a JSON object. Accepts any bytes.
// LineRouter owns one for each stream. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd::launcher {

// A longer line is cut into several lines, each with a newline. In text, all but the last line end with " [continues]",
// and all but the first begin with "[continued] " after the tag; in JSON objects, all but the last have
// "continues":true. No UTF-8 character is cut.
constexpr size_t kMaxLine = 256 * 1024;

enum class LineFormat {
  kText,  // tag and line
  kJson,  // the tag begins a JSON object, and the line is its last member
};

class LineTagger {
 public:
  explicit LineTagger(std::string tag, LineFormat format = LineFormat::kText)
      : tag_(std::move(tag)), format_(format) {}

  // Applies to lines that are completed after the call.
  void set_tag(std::string tag) { tag_ = std::move(tag); }

  // Appends the lines that are now complete. A line keeps its end: "\n", "\r" or "\r\n".
  void feed(std::string_view bytes, std::string& out);
  // Ends an unfinished line with a newline.
  void finish(std::string& out);

  // Returns the text before an unfinished line: the tag, and "[continued] " for the rest of a longer line.
  std::string prefix() const;
  const std::string& held() const { return held_; }

 private:
  void hold(std::string_view piece, std::string& out);
  void append(std::string_view line, std::string_view end, std::string& out,
              bool continues = false);

  std::string tag_;
  LineFormat format_;
  std::string held_;           // a line whose end has not arrived
  bool has_returned_ = false;  // the last byte was a '\r' that ended a line
  bool is_continued_ = false;  // held_ is the rest of a longer line
};

// Removes and returns the first line with its end: "\n", "\r\n", or '\r' after a bar.
std::string_view take_row(std::string_view& lines);
// Removes the color of the tag (the first two escape sequences) from each line. Lines keep their own colors.
std::string without_tag_colors(std::string_view lines);

// Returns an error if the tag of --tag has an unknown {word}.
Status check_tag(std::string_view tag);

// Checks the words in braces in a flag's value, for example {host} in --tag. An error names the flag and the `known`
// words. Ignores ${name}, a variable of a shell.
Status check_placeholders(std::string_view flag, std::string_view text,
                          std::span<const std::string_view> known);

}  // namespace hvd::launcher
