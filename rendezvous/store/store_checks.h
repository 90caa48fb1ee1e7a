// The checks of keys and values that every Store makes, and the errors of these checks. Stores and the server call
// these stateless functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::rendezvous {

Status check_key(std::string_view key);
Status check_value(std::string_view key, size_t size);

}  // namespace hvd::rendezvous
