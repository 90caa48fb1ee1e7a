// Divides elements and rows among ranks, hosts and threads. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hvd::collectives {

// Elements [first, first + count) of a chunk, or rows of a tensor.
struct Slice {
  size_t first;
  size_t count;
};

// Returns the slice of `count` elements for part `part` of `parts`: whole cache lines; the last
// part gets the rest.
inline Slice slice_of(size_t count, size_t parts, size_t part, size_t element) {
  const size_t line = 64 / element;
  const size_t each = ((count + parts - 1) / parts + line - 1) / line * line;
  const size_t first = std::min(count, part * each);
  return {first, std::min(count - first, each)};
}

// Returns the rows of a reducescatter for one member. If the rows do not divide evenly, the first
// members get one more row.
inline Slice scattered_rows(size_t rows, size_t members, size_t index) {
  const size_t each = rows / members;
  const size_t longer = rows % members;
  return {index * each + std::min(index, longer), each + (index < longer ? 1 : 0)};
}

}  // namespace hvd::collectives
