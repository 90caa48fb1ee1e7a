// The store of a rank whose agent aggregates records (host_aggregation.h): an HttpStore that sends
// exchanges among all ranks of the job through the agent, one request for the whole host. Any thread
// may call.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "rendezvous/client/host_aggregation.h"
#include "rendezvous/client/http_store.h"

namespace hvd::rendezvous {

class AgentStore final : public HttpStore {
 public:
  // `store`: the abstract name at which the agent offers the store. `ranks`: of the job; an
  // exchange of so many in which nobody names whose records it wants is asked by all of them.
  AgentStore(const net::Endpoint& store, int ranks, Secret secret, HttpStoreOptions options = {});

  Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party, ByteView record,
                                      Deadline deadline) override;
  Status forget(std::string_view exchange, Deadline deadline) override;

 private:
  struct AgentReply;  // of the agent

  static Status tell(int socket, const host_aggregation::Message& message, ByteView bulk);
  static Result<AgentReply> hear(int socket, Deadline deadline);
  Result<Bytes> forward(int socket, std::string_view name,
                        const host_aggregation::ForwardRequest& request, ByteView record,
                        Deadline deadline);

  const std::string socket_name_;
  const int ranks_;
};

}  // namespace hvd::rendezvous
