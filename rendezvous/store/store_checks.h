// Checks of keys and values that every Store makes, and their errors. Stateless functions; stores
// and the server call them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::rendezvous {

Status check_key(std::string_view key);
Status check_value(std::string_view key, size_t size);

}  // namespace hvd::rendezvous
