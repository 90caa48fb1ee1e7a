// Cuts what a rank writes into lines and puts its tag before each. Pure; any bytes survive.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

// A line that is longer is cut into several, each ended with a newline.
constexpr size_t kMaxLine = 256 * 1024;

class LineTagger {
 public:
  explicit LineTagger(std::string tag) : tag_(std::move(tag)) {}

  // Appends the lines that are complete now. A line ends with "\n", "\r" or "\r\n", which it keeps.
  void feed(std::string_view bytes, std::string& out);
  // What was left without an end gets a newline.
  void finish(std::string& out);

  size_t held() const { return held_.size(); }

 private:
  void hold(std::string_view piece, std::string& out);

  std::string tag_;
  std::string held_;  // a line that has no end yet
};

}  // namespace hvd::launcher
