// The leader's side of the door at which the ranks of a host meet: strangers may knock, and are sent
// away; nobody can hold it up. Waits, up to the deadline; used once, when opening.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/unique_fd.h"
#include "collectives/mesh/credentials.h"
#include "collectives/mesh/peer_record.h"

namespace hvd::collectives {

// What a member sends: its rank, a nonce, its proof.
struct Application {
  int32_t rank = -1;
  Nonce nonce{};
  Digest proof{};

  Bytes encode() const;
  static std::optional<Application> decode(ByteView bytes);
};

// What is said to who is sent away.
constexpr std::string_view kRefused = "refused";

class Reception {
 public:
  // `members`: the ranks that may come in.
  Reception(int listener, const Credentials& credentials, int32_t rank,
            const std::vector<int32_t>& members)
      : listener_(listener), credentials_(credentials), rank_(rank), members_(members) {}

  struct Guest {
    GuardedFd socket;
    Nonce mine{};
    Nonce theirs{};
    UniqueFd heap;
  };

  // All members, by their rank.
  Result<std::map<int32_t, Guest>> receive(const std::vector<PeerRecord>& records,
                                           Deadline deadline);

 private:
  GuardedFd take_call();
  void open_door();
  void examine(size_t index);
  Status late(const std::vector<PeerRecord>& records) const;

  int listener_;
  const Credentials& credentials_;
  int32_t rank_;
  const std::vector<int32_t>& members_;
  std::vector<Guest> waiting_;
  std::map<int32_t, Guest> admitted_;
};

}  // namespace hvd::collectives
