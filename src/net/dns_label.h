// Checks the length that DNS allows for each part of a host name. Kubernetes derives pod names from
// job names, and a pod name may become too long. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"

namespace hvd::net {

// Returns a clause to append to an error about a name that does not resolve; empty if all its parts are short enough.
inline std::string advice_on_long_name(std::string_view name) {
  constexpr size_t kMaxLabel = 63;
  for (const std::string& label : split(name, '.')) {
    if (label.size() > kMaxLabel) {
      return cat("; '", printable(label), "' has ", label.size(), " characters, and DNS takes ",
                 kMaxLabel, ": give the job or the host a shorter name");
    }
  }
  return {};
}

}  // namespace hvd::net
