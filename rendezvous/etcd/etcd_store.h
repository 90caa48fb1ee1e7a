// The DurableStore that keeps a server's records in etcd, below the job's prefix. Sends one transaction at a time, with
// as many of the waiting changes as fit. A transaction succeeds only while the key `owner` names this server; another
// server takes over the job by writing that key. All keys belong to one lease, which the store keeps alive. Lives on
// the server's loop.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/secrets/secret.h"
#include "rendezvous/etcd/etcd_access.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/store/durable_store.h"

namespace hvd::rendezvous::etcd {

// The default time for which etcd keeps the job without a server.
constexpr std::chrono::seconds kUsualLifetime{3600};

// Takes over the job that belongs to this secret, or creates it.
net::Task<Result<OpenedStore>> open_store(net::asio::any_io_executor executor, Url url,
                                          const Secret& secret, std::chrono::seconds lifetime,
                                          Deadline deadline);

class EtcdStore final : public DurableStore, public std::enable_shared_from_this<EtcdStore> {
 public:
  EtcdStore(net::asio::any_io_executor executor, Url url, const Secret& secret,
            std::chrono::seconds lifetime);

  // Claims the job and returns its records. The owner calls it once, before all other functions.
  net::Task<Result<Records>> take_over(Deadline deadline);

  void put(std::string name, Bytes record) override;
  void remove(std::string name) override;
  void remove_below(std::string prefix) override;
  void seal() override;
  net::Task<bool> confirm() override;
  void on_lost(std::function<void(Status)> on_lost) override { on_lost_ = std::move(on_lost); }
  void end() override;
  void stop() override;

 private:
  // Changes for one transaction, by etcd's key; or the removal of one prefix without changes.
  struct Group {
    std::map<std::string, std::optional<std::string>, std::less<>> changes;
    std::string removed_prefix;
    size_t bytes = 0;
    uint64_t number = 0;  // number of this group; of the last one after groups were merged
  };

  net::Task<Result<bool>> claim(Deadline deadline);
  net::Task<Status> load(Records& records, Deadline deadline);
  net::Task<Status> load_below(std::string prefix, int page, Records& found, Deadline deadline);
  net::Task<void> run();
  net::Task<void> keep_alive();
  net::Task<void> remove_all();
  net::Task<Status> commit(const Group& batch);
  Group next_batch();
  void enqueue(Group group);
  std::string write_pieces(const std::string& name, Bytes record);
  void forget_pieces(const std::string& name);
  std::string owner_value(uint64_t count) const;
  void lose(Status why);

  const net::asio::any_io_executor executor_;
  const Url url_;
  const std::chrono::seconds lifetime_;
  std::string root_;         // prefix of all keys of the job; ends with '/'
  std::string fingerprint_;  // fingerprint of the secret
  std::string server_;       // random name of this server
  const std::shared_ptr<EtcdClient> client_;
  const std::shared_ptr<EtcdClient> lease_client_;
  int64_t lease_ = 0;

  std::string owner_;               // value of the key `owner`
  uint64_t count_ = 0;              // transactions that changed `owner`
  std::deque<Group> queue_;         // sealed groups that wait for their transaction
  Group open_;                      // changes since the last seal
  std::vector<std::string> stale_;  // prefixes of pieces that no record uses after `open_`
  std::map<std::string, std::string> pieces_;  // record's name -> prefix of its pieces
  uint64_t next_piece_ = 1;
  uint64_t last_group_ = 0;        // number of the last group in queue_
  uint64_t done_group_ = 0;        // number of the last group that etcd has stored
  net::asio::steady_timer wake_;   // cancelled when queue_ gets a group, for run
  net::asio::steady_timer done_;   // cancelled when done_group_ has changed, for confirm
  net::asio::steady_timer pulse_;  // period of keep_alive
  bool is_over_ = false;
  std::function<void(Status)> on_lost_;
};

}  // namespace hvd::rendezvous::etcd
