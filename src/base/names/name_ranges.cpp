#include "base/names/name_ranges.h"

#include "base/check.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxDigits = 18;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Result<int64_t> number_of(std::string_view digits) {
  if (digits.size() > kMaxDigits) {
    return invalid_argument(cat("'", printable(digits), "' is too long for a host's number"));
  }
  return *parse_int(digits);
}

// Expands a range, "01-16", or a number, "20".
Result<std::vector<std::string>> expand_range(std::string_view text) {
  const size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : text.substr(dash + 1);
  if (!is_number(first) || !is_number(last)) {
    return invalid_argument(cat("'", printable(text),
                                "' is neither a number nor a range such as "
                                "01-16"));
  }
  HVD_ASSIGN_OR_RETURN(const int64_t low, number_of(first));
  HVD_ASSIGN_OR_RETURN(const int64_t high, number_of(last));
  if (low > high) {
    return invalid_argument(cat("the range ", printable(text), " ends before it begins"));
  }
  if (static_cast<uint64_t>(high - low) >= kMaxNames) {
    return invalid_argument(
        cat("the range ", printable(text), " has more than ", kMaxNames, " hosts"));
  }
  std::vector<std::string> numbers;
  for (int64_t number = low; number <= high; ++number) {
    std::string digits = cat(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
  return numbers;
}

// Finds the bracket that closes the bracket at `open`.
size_t closing_bracket(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

Result<std::vector<std::string>> expand(std::string_view pattern, int depth);

Result<std::vector<std::string>> expand_list(std::string_view list, int depth) {
  if (depth > kMaxDepth) return invalid_argument("brackets are nested too deeply");
  std::vector<std::string> all;
  for (const std::string_view part : split_outside_brackets(list)) {
    const std::string_view text = trim(part);
    const bool is_nested = text.find('[') != std::string_view::npos;
    HVD_ASSIGN_OR_RETURN(const auto some, is_nested ? expand(text, depth) : expand_range(text));
    all.insert(all.end(), some.begin(), some.end());
    if (all.size() > kMaxNames) return invalid_argument(cat("more than ", kMaxNames, " hosts"));
  }
  return all;
}

Result<std::vector<std::string>> expand(std::string_view pattern, int depth) {
  std::vector<std::string> names = {""};
  while (!pattern.empty()) {
    const size_t open = pattern.find('[');
    const std::string_view plain = pattern.substr(0, open);
    if (plain.find(']') != std::string_view::npos) {
      return invalid_argument("a ']' has no '[' before it");
    }
    for (std::string& name : names) name += plain;
    if (open == std::string_view::npos) break;
    const size_t close = closing_bracket(pattern, open);
    if (close == std::string_view::npos) return invalid_argument("the ']' is missing");
    HVD_ASSIGN_OR_RETURN(const auto parts,
                         expand_list(pattern.substr(open + 1, close - open - 1), depth + 1));
    if (names.size() * parts.size() > kMaxNames) {
      return invalid_argument(cat("its ranges name more than ", kMaxNames, " hosts"));
    }
    std::vector<std::string> longer;
    longer.reserve(names.size() * parts.size());
    for (const std::string& name : names) {
      for (const std::string& part : parts) longer.push_back(name + part);
    }
    names = std::move(longer);
    pattern.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_names(std::string_view pattern) {
  return expand(pattern, 0);
}

std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && depth > 0) --depth;
    if (text[i] != ',' || depth > 0) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace hvd
