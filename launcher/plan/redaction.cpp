#include "launcher/plan/redaction.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kHidden = "<redacted>";
// Shorter values are not hidden: a text such as "1" would hide parts of many numbers.
constexpr size_t kLeastSecret = 6;
constexpr size_t kHexOfSecret = 32;

constexpr std::string_view kSecretWords[] = {"secret",
                                             "token",
                                             "pass",
                                             "pwd",
                                             "credential",
                                             "auth",
                                             "cookie",
                                             "signature",
                                             "jwt",
                                             "private",
                                             "key",
                                             "bearer",
                                             "precondition_transports"};

// Returns the word of kSecretWords that the name contains; empty if it contains none.
std::string_view secret_word(std::string_view name) {
  const std::string lower = to_lower(name);
  for (const std::string_view word : kSecretWords) {
    if (lower.find(word) != std::string::npos) return word;
  }
  return {};
}

// Returns whether the value is a path (SSH_AUTH_SOCK, TOKEN_FILE). A slash alone is not enough: base64 also has
// slashes.
bool is_path(std::string_view value) {
  constexpr std::string_view kBegins = "/~.";
  return !value.empty() && kBegins.find(value.front()) != std::string_view::npos &&
         value.find('/') != std::string_view::npos;
}

void hide_all(std::string& text, std::string_view secret) {
  for (size_t at = 0; (at = text.find(secret, at)) != std::string::npos; at += kHidden.size()) {
    text.replace(at, secret.size(), kHidden);
  }
}

// Changes "http://user:password@proxy:3128" to "http://<redacted>@proxy:3128".
void hide_users_of_urls(std::string& text) {
  constexpr std::string_view kScheme = "://";
  for (size_t at = 0; (at = text.find(kScheme, at)) != std::string::npos;) {
    at += kScheme.size();
    const size_t end = std::min(text.find_first_of(" \t\"'", at), text.size());
    const size_t sign = text.rfind('@', end);
    if (sign != std::string::npos && sign >= at) text.replace(at, sign - at, kHidden);
  }
}

// Hides the rest of the line after "--api-key ", "TOKEN=" or "Authorization: ", because a secret may contain blanks.
void hide_after_names(std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(" \t=:", begin), text.size());
    const std::string_view name = std::string_view(text).substr(begin, end - begin);
    const std::string_view word = secret_word(name);
    const char behind = end < text.size() ? text[end] : '\0';
    // Keep "KeyError: ...", which users search for.
    const bool has_value = behind == '=' || (behind == ':' && word != "key") ||
                           (behind == ' ' && name.starts_with('-')) || word == "bearer";
    if (!word.empty() && has_value && end < text.size()) {
      text.replace(end + 1, std::string::npos, kHidden);
      return;
    }
    begin = end + 1;
  }
}

void hide_digits(std::string& text) {
  const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (auto at = text.begin(); at != text.end();) {
    const auto begin = std::find_if(at, text.end(), is_digit);
    at = std::find_if_not(begin, text.end(), is_digit);
    if (static_cast<size_t>(at - begin) < kHexOfSecret) continue;
    const auto start = begin - text.begin();
    text.replace(begin, at, kHidden);
    at = text.begin() + start + static_cast<ptrdiff_t>(kHidden.size());
  }
}

}  // namespace

bool is_secret_name(std::string_view name) { return !secret_word(name).empty(); }

Redactor::Redactor(std::span<const std::pair<std::string, std::string>> environment) {
  for (const auto& [name, value] : environment) {
    if (value.size() < kLeastSecret || is_path(value) || !is_secret_name(name)) continue;
    secrets_.push_back(value);
  }
  std::sort(secrets_.begin(), secrets_.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::string Redactor::redact(std::string_view line) const {
  std::string text(line);
  for (const std::string& secret : secrets_) hide_all(text, secret);
  hide_users_of_urls(text);
  hide_after_names(text);
  hide_digits(text);
  return text;
}

std::vector<std::string> Redactor::redact_command(std::span<const std::string> words) const {
  std::vector<std::string> shown;
  shown.reserve(words.size());
  bool is_value = false;
  for (const std::string& word : words) {
    std::vector<std::string> lines = split(word, '\n');  // a script may have several lines
    for (std::string& line : lines) line = redact(line);
    shown.push_back(is_value && !word.starts_with('-') ? std::string(kHidden) : join(lines, "\n"));
    is_value = word.starts_with('-') && word.find('=') == std::string::npos && is_secret_name(word);
  }
  return shown;
}

std::string Redactor::redact(std::string_view name, std::string_view value) const {
  return is_secret_name(name) ? std::string(kHidden) : redact(value);
}

}  // namespace hvd::launcher
