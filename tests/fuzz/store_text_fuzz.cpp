// Replies of a server that a client parses: refused, or formatted again to the same text.
#include "fuzz/target.h"
#include "rendezvous/wire/target.h"

HVD_FUZZ_TARGET(store_text) {
  using namespace hvd::rendezvous;
  if (const auto page = parse_keys(bytes); page.ok()) {
    const auto again = parse_keys(hvd::as_bytes(to_text(*page)));
    HVD_CHECK(again.ok() && again->keys == page->keys && again->more == page->more);
  }
  if (const auto changes = parse_changes(bytes); changes.ok()) {
    const auto again = parse_changes(hvd::as_bytes(to_text(*changes)));
    HVD_CHECK(again.ok() && again->changes == changes->changes);
  }
  if (const auto swap = parse_swap(bytes); swap.ok()) {
    const std::string text = to_text(swap->swapped, swap->value ? &*swap->value : nullptr);
    HVD_CHECK(std::ranges::equal(hvd::as_bytes(text), bytes));
  }
}
