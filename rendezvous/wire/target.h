// The target of a request: "/v1/keys/<key>?wait=500&client=ab". Key and values are percent-encoded, and may be any
// bytes. Without I/O.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "rendezvous/store/state.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

// Converts between Code and HTTP status by the table "Errors" of PROTOCOL.md.
int to_http(Code code);
Code from_http(int status);

// Longest wait of one request, in milliseconds. For a longer wait, a client repeats the request.
constexpr int64_t kLongestWait = 24LL * 3600 * 1000;

struct Target {
  std::string resource;  // "keys", "swap", "join", "hello"
  std::string name;      // name of a key or exchange; may be empty
  std::map<std::string, std::string, std::less<>> query;

  // Returns the value of a parameter; nullopt if the parameter is absent.
  std::optional<std::string_view> text(std::string_view parameter) const;
  // Returns nullopt if the parameter is absent; kInvalidArgument if it is not an integer from `least` to `most`.
  Result<std::optional<int64_t>> number(std::string_view parameter, int64_t least,
                                        int64_t most) const;
};

std::string to_string(const Target& target);
Result<Target> parse_target(std::string_view text);

// One page of a list of keys: the answer to list.
struct KeyPage {
  std::vector<std::string> keys;
  bool more = false;  // further keys follow on the next page
};

// Encodes the answer to list as PROTOCOL.md defines it.
std::string to_text(const KeyPage& page);
// Parses the answer to list; an error for malformed bytes.
Result<KeyPage> parse_keys(ByteView text);

// Encodes the answer to watch as PROTOCOL.md defines it.
std::string to_text(const Changes& changes);
// Parses the answer to watch; an error for malformed bytes.
Result<Changes> parse_changes(ByteView text);

// Encodes the answer to swap as PROTOCOL.md defines it. `value`: null if the key is absent.
std::string to_text(bool swapped, const Bytes* value);
// Parses the answer to swap; an error for malformed bytes.
Result<Swap> parse_swap(ByteView text);

}  // namespace hvd::rendezvous
