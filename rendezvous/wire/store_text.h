// Texts of the answers to list, watch and swap, as PROTOCOL.md defines them. Stateless, without
// I/O; the server writes the texts and HttpStore parses them. The parsers accept any bytes.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/store/change_log.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

// One page of a list of keys.
struct KeyPage {
  std::vector<std::string> keys;
  bool more = false;  // further keys follow on the next page
};

std::string to_text(const KeyPage& page);
Result<KeyPage> parse_keys(ByteView text);

std::string to_text(const Changes& changes);
Result<Changes> parse_changes(ByteView text);

// `value`: null if the key is absent.
std::string to_text(bool swapped, const Bytes* value);
Result<Swap> parse_swap(ByteView text);

}  // namespace hvd::rendezvous
