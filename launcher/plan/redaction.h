// Removes secrets from text for a public report, and from stored commands. Also removes words that may be secrets.
// Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::launcher {

// Returns whether the name is the name of a secret: SLURM_JWT, HOROVOD_JOB_SECRET, tls_key, --password.
bool is_secret_name(std::string_view name);

class Redactor {
 public:
  // In any text, the values of `environment` with secret names are hidden, except short values and paths.
  explicit Redactor(std::span<const std::pair<std::string, std::string>> environment);

  // Returns the line without secrets. Secrets are the values of secret variables, a URL's user and password, the text
  // after a secret name and "=" or ":" (after a flag, also a blank), and runs of 32 or more hexadecimal digits.
  std::string redact(std::string_view line) const;
  // Redacts the words of a command; the value after a flag with a secret name is hidden.
  std::vector<std::string> redact_command(std::span<const std::string> words) const;
  // Redacts the value of a variable or setting of this name.
  std::string redact(std::string_view name, std::string_view value) const;

 private:
  std::vector<std::string> secrets_;  // the longest first
};

}  // namespace hvd::launcher
