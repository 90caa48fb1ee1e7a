// Ranks that tell each other, before a library starts, what they have found and what is wrong: so
// that one rank's trouble is every rank's sentence, and none waits inside the library for one that
// will not come.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "horovod/plugin.h"

namespace hvd::ops {

class Rounds {
 public:
  Rounds(const hvd_plugin_host& host, const hvd_plugin_config& config)
      : host_(host), config_(config) {}

  // Each rank brings a record, or what keeps it from having one; all get all records, or the
  // sentence of the lowest rank that has one. `name` is good for one round.
  Result<std::vector<std::string>> exchange(const char* name, const Status& own,
                                            const std::string& record) const;

 private:
  const hvd_plugin_host& host_;
  const hvd_plugin_config& config_;
};

}  // namespace hvd::ops
