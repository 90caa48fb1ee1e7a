#include "base/lost_peer.h"

#include <doctest/doctest.h>

using namespace hvd;

TEST_CASE("the rank of a sentence about a lost peer is found, also behind what was put before it") {
  const std::string sentence = lost_peer(31, "b.example.org", "its process ended");
  CHECK(sentence == "rank 31 on host b.example.org was lost: its process ended");
  CHECK(lost_peer_in(sentence) == 31);
  CHECK(lost_peer_in("rank 2: rank 3 on host c: " + sentence) == 31);
}

TEST_CASE("other sentences name no lost peer") {
  for (const char* text :
       {"", "rank 3 on host b", "host b was lost: it does not answer",
        "rank  on host b was lost: ", "rank -1 on host b was lost: its end",
        "rank 99999999999 on host b was lost: its end", "rank 3 on host b has shut down"}) {
    CAPTURE(text);
    CHECK(!lost_peer_in(text));
  }
}
