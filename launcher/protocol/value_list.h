// Lists of values as text of an Inspected message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/wire/value_bytes.h"

namespace hvd::launcher {

template <typename T>
std::string encode_list(const std::vector<T>& values) {
  ByteWriter out;
  put(out, values);
  return std::string(as_text(out.view()));
}

// `what`, for a message: "the signs of ranks".
template <typename T>
Result<std::vector<T>> decode_list(std::string_view bytes, std::string_view what) {
  ByteReader in(as_bytes(bytes));
  std::vector<T> values;
  get(in, values);
  HVD_RETURN_IF_ERROR(in.finish(what));
  return values;
}

}  // namespace hvd::launcher
