#include "runtime/shrink.h"

#include <algorithm>

namespace hvd::test {
namespace {

// Removes ever smaller ranges of the elements that `list` returns for a program.
template <typename List>
void take_out(Program* program, const std::function<bool(const Program&)>& fails, int* tries,
              const List& list) {
  for (size_t piece = std::max<size_t>(1, list(*program).size() / 2);;) {
    for (size_t first = 0; first < list(*program).size() && *tries > 0;) {
      Program smaller = *program;
      auto& elements = list(smaller);
      const size_t last = std::min(first + piece, elements.size());
      elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(first),
                     elements.begin() + static_cast<std::ptrdiff_t>(last));
      --*tries;
      if (fails(smaller))
        *program = std::move(smaller);
      else
        first += piece;
    }
    if (piece == 1 || *tries <= 0) return;
    piece /= 2;
  }
}

}  // namespace

Program shrink(Program program, const std::function<bool(const Program&)>& fails, int tries) {
  take_out(
      &program, fails, &tries, [](Program & of) -> auto& { return of.rounds; });
  for (size_t i = 0; i < program.rounds.size(); ++i) {
    take_out(
        &program, fails, &tries, [i](Program & of) -> auto& { return of.rounds[i].steps; });
  }
  return program;
}

}  // namespace hvd::test
