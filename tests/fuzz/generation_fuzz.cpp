#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "rendezvous/wire/generation.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::rendezvous;
  const hvd::ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  static_cast<void>(decode_place_request(bytes));
  const auto generation = decode_generation(bytes);
  if (!generation.ok()) return 0;
  const auto again = decode_generation(encode(*generation));
  HVD_CHECK(again.ok() && again->members.size() == generation->members.size());
  for (size_t rank = 0; rank < generation->members.size(); ++rank) {
    const auto place = place_of(*generation, generation->members[rank].process);
    HVD_CHECK(place.ok() && place->rank == static_cast<int>(rank));
    HVD_CHECK(place->local_rank < place->local_size && place->cross_rank < place->cross_size);
  }
  return 0;
}
