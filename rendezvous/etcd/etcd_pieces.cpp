#include "rendezvous/etcd/etcd_pieces.h"

#include <utility>

#include "base/text.h"

namespace hvd::rendezvous::etcd {
namespace {

// First byte of a value. After kWhole follows the record; after kInPieces follow the size of the record
// and the prefix of its pieces.
constexpr char kWhole = 'w';
constexpr char kInPieces = 'p';

}  // namespace

std::string whole_value(ByteView record) {
  std::string value(1, kWhole);
  value += as_text(record);
  return value;
}

std::string value_in_pieces(size_t size, std::string_view prefix) {
  return cat(kInPieces, size, " ", prefix);
}

std::string piece_key(std::string_view prefix, size_t number) {
  constexpr size_t kDigits = 8;
  std::string digits = std::to_string(number);
  digits.insert(0, kDigits - digits.size(), '0');
  return cat(prefix, digits);
}

Result<JoinedRecords> join_records(const Records& values, Records pieces) {
  JoinedRecords joined;
  for (const auto& [key, value] : values) {
    const std::string name = key.substr(1);
    const std::string_view text = as_text(value);
    const Status malformed =
        failed_precondition(cat("the record '", printable(key), "' is malformed"));
    if (text.starts_with(kWhole)) {
      joined.records.emplace(name, to_bytes(text.substr(1)));
      continue;
    }
    const size_t space = text.find(' ');
    if (!text.starts_with(kInPieces) || space == std::string_view::npos) return malformed;
    const std::string prefix(text.substr(space + 1));
    // Another prefix could name the pieces of several records.
    if (!prefix.starts_with('l') || prefix.find('/') != prefix.size() - 1) return malformed;
    Bytes record;
    for (auto piece = pieces.lower_bound(prefix);
         piece != pieces.end() && piece->first.starts_with(prefix);) {
      record.insert(record.end(), piece->second.begin(), piece->second.end());
      piece = pieces.erase(piece);
    }
    const auto size = parse_int(text.substr(1, space - 1));
    if (!size || static_cast<uint64_t>(*size) != record.size()) return malformed;
    joined.records.emplace(name, std::move(record));
    joined.prefixes.emplace(name, prefix);
  }
  joined.stale = std::move(pieces);
  return joined;
}

}  // namespace hvd::rendezvous::etcd
