// The record of the job's store with the addresses of one member of a process set, a separate address
// for each other member. An entry is the length of an address and its bytes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::ops::gloo_backend {

// Returns an empty record. `longest`: size of the longest address, in bytes.
inline std::string address_record(size_t size, size_t longest) {
  return std::string((longest + 1) * size, '\0');
}

inline void put_address(std::string* record, size_t longest, size_t member,
                        const std::vector<char>& address) {
  char* place = record->data() + (longest + 1) * member;
  *place = static_cast<char>(address.size());
  std::memcpy(place + 1, address.data(), address.size());
}

// Returns the address for `member` from another member's record. The set has `size` members.
inline Result<std::vector<char>> take_address(std::string_view record, size_t size, size_t longest,
                                              size_t member) {
  if (record.size() != (longest + 1) * size) {
    return internal_error("Gloo: addresses of another build");
  }
  const char* place = record.data() + (longest + 1) * member;
  const auto length = static_cast<uint8_t>(*place);
  if (length > longest) return internal_error("Gloo: an address is longer than its place");
  return std::vector<char>(place + 1, place + 1 + length);
}

}  // namespace hvd::ops::gloo_backend
