#include "launcher/mpirun/shell_words.h"

#include "base/text.h"

namespace hvd::launcher {
namespace {

// Whether the text begins with a backslash that protects the next character. `quote`: the open one, or 0.
bool is_escape(std::string_view text, char quote) {
  if (text.size() < 2 || text[0] != '\\' || quote == '\'') return false;
  return quote == '\0' || text[1] == '"' || text[1] == '\\';
}

}  // namespace

Result<std::vector<std::string>> shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool is_in_word = false;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char each = text[i];
    if (is_escape(text.substr(i), quote)) {
      word += text[++i];
      is_in_word = true;
    } else if (quote != '\0') {
      if (each == quote) {
        quote = '\0';
      } else {
        word += each;
      }
    } else if (each == '\'' || each == '"') {
      quote = each;
      is_in_word = true;
    } else if (each == ' ' || each == '\t' || each == '\n') {
      if (is_in_word) words.push_back(std::move(word));
      word.clear();
      is_in_word = false;
    } else {
      word += each;
      is_in_word = true;
    }
  }
  if (quote != '\0') {
    return invalid_argument(cat("a quote ", quote, " is not closed in ", printable(text)));
  }
  if (is_in_word) words.push_back(std::move(word));
  return words;
}

}  // namespace hvd::launcher
