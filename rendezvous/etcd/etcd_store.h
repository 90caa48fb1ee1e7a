// Stores a server's records in etcd, below a prefix of the job. Transactions follow one another; each
// carries the changes since the one before, and succeeds only while the key `owner` names this
// server. Another server takes the job over at once by writing that key, whatever happens to the
// first. All keys hang on one lease, which the server keeps alive.
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
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/etcd_url.h"
#include "rendezvous/store/durable_store.h"

namespace hvd::rendezvous::etcd {

// How long the job is kept when no server is there.
constexpr std::chrono::seconds kUsualLifetime{3600};

// Takes over the job of this secret, or starts one.
net::Task<Result<OpenedStore>> open_store(net::asio::any_io_executor executor, Url url,
                                          const Secret& secret, std::chrono::seconds lifetime,
                                          Deadline deadline);

class EtcdStore final : public DurableStore, public std::enable_shared_from_this<EtcdStore> {
 public:
  EtcdStore(net::asio::any_io_executor executor, Url url, const Secret& secret,
            std::chrono::seconds lifetime);

  // Once, before all others.
  net::Task<Result<Records>> take_over(Deadline deadline);

  void put(std::string name, Bytes record) override;
  void remove(std::string name) override;
  void remove_below(std::string prefix) override;
  void seal() override;
  net::Task<bool> confirm() override;
  void on_lost(std::function<void(Status)> told) override { told_ = std::move(told); }
  void end() override;
  void stop() override;

 private:
  // How a value in etcd begins: with the record behind it, or the record's size and the prefix of
  // its pieces.
  static constexpr char kWhole = 'w';
  static constexpr char kInPieces = 'p';

  // Changes that are done together, by etcd's keys; or the removal of a prefix alone.
  struct Group {
    std::map<std::string, std::optional<std::string>, std::less<>> changes;
    std::string removed_prefix;
    size_t bytes = 0;
    uint64_t number = 0;  // of the last group in it
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
  std::string root_;         // of all keys, with the '/' behind it
  std::string fingerprint_;  // of the secret
  std::string server_;       // this one's name
  const std::shared_ptr<EtcdClient> client_;
  const std::shared_ptr<EtcdClient> lease_client_;
  int64_t lease_ = 0;

  std::string owner_;        // what the key holds
  uint64_t count_ = 0;       // of transactions that changed it
  std::deque<Group> queue_;  // sealed
  Group open_;
  std::vector<std::string> stale_;  // prefixes of pieces that nothing names after `open_`
  std::map<std::string, std::string> pieces_;  // prefix of the pieces of a record, by its name
  uint64_t next_piece_ = 1;
  uint64_t last_group_ = 0;
  uint64_t done_group_ = 0;
  net::asio::steady_timer wake_;   // of run
  net::asio::steady_timer done_;   // cancelled when done_group_ has changed
  net::asio::steady_timer pulse_;  // of keep_alive
  bool is_over_ = false;
  std::function<void(Status)> told_;
};

}  // namespace hvd::rendezvous::etcd
