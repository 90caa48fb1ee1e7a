// What every store refuses, and in which words.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::rendezvous {

Status check_key(std::string_view key);
Status check_value(std::string_view key, size_t size);
Status check_lifetime(std::chrono::milliseconds lifetime);
// A watch that ended without a change.
Status nothing_changed(std::string_view prefix);

}  // namespace hvd::rendezvous
