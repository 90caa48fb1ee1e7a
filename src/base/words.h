// Splits text into words and lines, and compares the release numbers of versions.
#pragma once

#include <string_view>
#include <vector>

namespace hvd {

// Returns the words between white space.
std::vector<std::string_view> words_of(std::string_view text);
// Removes the first line from the text, and returns it without its newline.
std::string_view take_line(std::string_view& text);

// Returns the major and minor number of a version: "0.90" for "0.90.2".
constexpr std::string_view release_of(std::string_view version) {
  const size_t minor = version.find('.');
  return version.substr(0, minor == std::string_view::npos ? minor : version.find('.', minor + 1));
}
// Versions of one release of this project are compatible.
constexpr bool is_same_release(std::string_view one, std::string_view other) {
  return release_of(one) == release_of(other);
}

}  // namespace hvd
