// The target of a request: "/v1/keys/<key>?wait=500&client=ab", with key and values percent-encoded
// so that they may be any bytes. Both ends use this file. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::rendezvous {

// Milliseconds that a request may ask to wait for; a client repeats a longer wait.
constexpr int64_t kLongestWait = 24LL * 3600 * 1000;

struct Target {
  std::string resource;  // "keys", "add", "fence", "join", "hello"
  std::string name;      // a key's or a fence's; empty when there is none
  std::map<std::string, std::string, std::less<>> query;

  // Nothing when it is absent.
  std::optional<std::string_view> text(std::string_view parameter) const;
  // kInvalidArgument when it is there and not a whole number of this range.
  Result<std::optional<int64_t>> number(std::string_view parameter, int64_t least,
                                        int64_t most) const;
};

std::string to_string(const Target& target);
Result<Target> parse_target(std::string_view text);

}  // namespace hvd::rendezvous
