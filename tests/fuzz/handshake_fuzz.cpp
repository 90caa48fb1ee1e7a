// The first bytes on a TCP connection between ranks; any process can send them.
#include <algorithm>
#include <cstdlib>

#include "collectives/mesh/handshake.h"
#include "fuzz/target.h"

HVD_FUZZ_TARGET(handshake) {
  const auto hello = hvd::collectives::Hello::decode(bytes);
  if (!hello.ok()) return;
  const hvd::Bytes again = hello->encode();
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
}
