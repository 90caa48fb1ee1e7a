// Answers of the server that are more than a value, as PROTOCOL.md writes them. Both ends. Pure;
// parsers trust nothing.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

// A part of a list of keys.
struct KeyPage {
  std::vector<std::string> keys;
  bool more = false;  // there are further ones
};

std::string to_text(const KeyPage& page);
Result<KeyPage> parse_keys(ByteView text);

std::string to_text(const Changes& changes);
Result<Changes> parse_changes(ByteView text);

// `value`: null when there is none.
std::string to_text(bool swapped, const Bytes* value);
Result<Swap> parse_swap(ByteView text);

}  // namespace hvd::rendezvous
