// Exchanges a record or an error between all ranks through the job's store, before a library starts. If one rank has an
// error, every rank then reports it, and no rank waits inside the library for the failed rank.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "horovod/plugin.h"

namespace hvd::ops {

// Returns the number in a setting of the job, or `otherwise` if the setting is unset or not a number.
inline double number_of(const hvd_plugin_host& host, const char* variable, double otherwise) {
  const char* set = host.setting(host.host, variable);
  return set == nullptr ? otherwise : parse_double(set).value_or(otherwise);
}

// Returns the time in seconds that ranks wait for each other before the first batch of a process set.
inline double start_seconds(const hvd_plugin_host& host) {
  return number_of(host, "HOROVOD_START_TIMEOUT", 600);
}

class Rounds {
 public:
  Rounds(const hvd_plugin_host& host, const hvd_plugin_config& config)
      : host_(host), config_(config) {}

  // Publishes this rank's record, or its error `own`. Returns the records of all ranks. If ranks have errors, returns
  // this rank's error or, if it has none, the error of the lowest such rank. Each exchange needs another `name`.
  Result<std::vector<std::string>> exchange(const char* name, const Status& own,
                                            const std::string& record) const;

 private:
  const hvd_plugin_host& host_;
  const hvd_plugin_config& config_;
};

// Returns a record for an exchange: this rank's version of a library, or the reason why it lacks the library.
std::string library_record(const Result<std::string>& version);
// Returns an error that names two ranks and ends with `advice`, unless all ranks have equal
// versions or none has the library.
Status check_same_library(const std::vector<std::string>& records, std::string_view advice);

}  // namespace hvd::ops
