// The store of a rank that horovodrun started: an HttpStore that sends exchanges between all ranks of the job through
// the host's agent, which makes one request for the complete host (host_aggregation.h). Any thread may call.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "rendezvous/client/host_aggregation.h"
#include "rendezvous/client/http_store.h"

namespace hvd::rendezvous {

class AgentStore final : public HttpStore {
 public:
  // `store`: abstract name of the socket at which the agent serves the store. `ranks`: number of ranks
  // of the job. An exchange goes through the agent if it has this number of parties and each wants all
  // records.
  AgentStore(const net::Endpoint& store, int ranks, Secret secret, HttpStoreOptions options = {});

  Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party, ByteView record,
                                      Deadline deadline) override;
  Status forget(std::string_view exchange, Deadline deadline) override;

 private:
  struct AgentReply;

  static Status send(int socket, const host_aggregation::Message& message, ByteView bulk);
  static Result<AgentReply> receive(int socket, Deadline deadline);
  Result<Bytes> forward(int socket, std::string_view name,
                        const host_aggregation::ForwardRequest& request, ByteView record,
                        Deadline deadline);

  const std::string socket_name_;
  const int ranks_;
};

}  // namespace hvd::rendezvous
