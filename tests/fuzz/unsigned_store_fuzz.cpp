// Any request of an unsigned client gets a status, a stored value is readable at once, and all
// values together stay within their limit.

#include "fuzz/target.h"
#include "rendezvous/server/unsigned_store.h"

// One request a line: method, target, body, separated by spaces.
HVD_FUZZ_TARGET(unsigned_store) {
  using namespace hvd::rendezvous;
  constexpr UnsignedLimits kLimits{.value_bytes = 100, .total_bytes = 4096};
  UnsignedStore store({{"global", 2}}, kLimits);
  const auto take = [](std::string_view* from, char end) {
    const std::string_view part = from->substr(0, from->find(end));
    from->remove_prefix(std::min(from->size(), part.size() + 1));
    return part;
  };
  while (!text.empty()) {
    std::string_view line = take(&text, '\n');
    const std::string_view method = take(&line, ' ');
    const std::string_view target = take(&line, ' ');
    const auto answer = store.answer(method, target, hvd::to_bytes(line));
    HVD_CHECK(store.taken_bytes() <= kLimits.total_bytes);
    HVD_CHECK(answer.status != 413 || (method == "PUT" && line.size() > kLimits.value_bytes));
    HVD_CHECK(UnsignedStore::knows(method) != (answer.status == 501));
    HVD_CHECK(answer.status == 200 || answer.value == nullptr);
    if (method == "PUT" && answer.status == 200) {
      const auto value = store.answer("GET", target, {});
      HVD_CHECK(value.status == 200 && hvd::as_text(value.value->bytes) == line);
    }
  }
}
