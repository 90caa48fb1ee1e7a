// Removes secrets from text that a user attaches to a public report, and from commands that are kept. In doubt it
// removes. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::launcher {

// True for names such as SLURM_JWT, HOROVOD_JOB_SECRET, tls_key, --password.
bool is_secret_name(std::string_view name);

class Redactor {
 public:
  // `environment`: the values of its variables with secret names are hidden wherever they occur.
  explicit Redactor(std::span<const std::pair<std::string, std::string>> environment);

  // One line in, one line out, without those values, the user and password of a URL, what follows a
  // secret name and "=", ":" or a blank, and 32 or more hexadecimal digits in a row.
  std::string redact(std::string_view line) const;
  // The words of a command, where a flag with a secret name stands before its value.
  std::vector<std::string> redact_command(std::span<const std::string> words) const;
  // The value of a variable or setting of this name.
  std::string redact(std::string_view name, std::string_view value) const;

 private:
  std::vector<std::string> secrets_;  // the longest first
};

}  // namespace hvd::launcher
