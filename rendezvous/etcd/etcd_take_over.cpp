// How a server takes over the job that etcd keeps.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "rendezvous/etcd/etcd_store.h"
#include "rendezvous/etcd/etcd_text.h"

namespace hvd::rendezvous::etcd {
namespace {

namespace asio = net::asio;

constexpr std::string_view kFormat = "horovod-rendezvous-1";
// Of records that lie whole, and of pieces: some 20 MiB of either at the most.
constexpr int kRecordsPage = 1000;
constexpr int kPiecesPage = 16;

// "horovod-rendezvous-1 <fingerprint> <lease> <server> <count>".
struct Owner {
  std::string fingerprint;
  int64_t lease = 0;
};

std::optional<Owner> parse_owner(std::string_view text) {
  const std::vector<std::string> words = split(text, ' ');
  if (words.size() != 5 || words[0] != kFormat) return {};
  const auto lease = parse_int(words[2]);
  if (!lease || *lease == 0) return {};
  return Owner{words[1], *lease};
}

}  // namespace

std::string EtcdStore::owner_value(uint64_t count) const {
  return cat(kFormat, " ", fingerprint_, " ", lease_, " ", server_, " ", count);
}

net::Task<Result<Records>> EtcdStore::take_over(Deadline deadline) {
  const auto self = shared_from_this();
  for (bool is_claimed = false; !is_claimed;) {
    const Result<bool> claimed = co_await claim(deadline);
    if (!claimed.ok()) co_return claimed.status();
    is_claimed = *claimed;
  }
  // Nobody else writes there from here on.
  Records records;
  const Status loaded = co_await load(records, deadline);
  if (!loaded.ok()) co_return loaded;
  asio::co_spawn(
      executor_, [self] { return self->run(); }, asio::detached);
  asio::co_spawn(
      executor_, [self] { return self->keep_alive(); }, asio::detached);
  co_return records;
}

// False when what was there has changed meanwhile.
net::Task<Result<bool>> EtcdStore::claim(Deadline deadline) {
  const std::string owner_key = root_ + "owner";
  const Result<Bytes> seen = co_await client_->call(
      "/v3/kv/range", range_request(owner_key, range_end_of(owner_key), 1), deadline);
  if (!seen.ok()) co_return seen.status();
  const Result<Range> range = parse_range(*seen);
  if (!range.ok()) co_return range.status();
  const bool is_there = !range->found.empty();
  if (is_there) {
    const auto owner = parse_owner(range->found.front().value);
    if (!owner || owner->fingerprint != fingerprint_) {
      co_return failed_precondition(
          cat("etcd keeps another job below ", printable(root_),
              ", one with another token: give "
              "this one a prefix of its own (etcd://HOST/PREFIX), or that one's token"));
    }
    lease_ = owner->lease;
  }
  const std::string path = is_there ? "/v3/lease/keepalive" : "/v3/lease/grant";
  const std::string request =
      is_there ? lease_request(lease_) : lease_grant_request(lifetime_.count());
  const Result<Bytes> granted = co_await client_->call(path, request, deadline);
  if (!granted.ok()) co_return granted.status();
  const Result<Lease> lease = parse_lease(*granted);
  if (!lease.ok()) co_return lease.status();
  if (lease->seconds == 0) co_return false;
  lease_ = lease->id;
  owner_ = owner_value(0);
  Txn txn;
  txn.key = owner_key;
  txn.condition = is_there ? Txn::Condition::kIsThere : Txn::Condition::kIsAbsent;
  txn.changes.emplace(owner_key, owner_);
  txn.lease = lease_;
  const Result<Bytes> answer = co_await client_->call("/v3/kv/txn", txn_request(txn), deadline);
  if (!answer.ok()) co_return answer.status();
  const Result<TxnAnswer> done = parse_txn(*answer);
  if (!done.ok()) co_return done.status();
  co_return done->is_done || done->held == owner_;
}

net::Task<Status> EtcdStore::load_below(std::string prefix, int page, Records& found,
                                        Deadline deadline) {
  const std::string below = root_ + prefix;
  std::string begin = below;
  for (bool more = true; more;) {
    const Result<Bytes> answer = co_await client_->call(
        "/v3/kv/range", range_request(begin, range_end_of(below), page), deadline);
    if (!answer.ok()) co_return answer.status();
    const Result<Range> range = parse_range(*answer);
    if (!range.ok()) co_return range.status();
    for (const KeyValue& one : range->found) {
      if (!one.key.starts_with(below)) co_return internal_error("etcd answered another range");
      found.emplace(one.key.substr(root_.size()), to_bytes(one.value));
      begin = one.key + '\0';
    }
    more = range->more && !range->found.empty();
  }
  co_return Status();
}

net::Task<Status> EtcdStore::load(Records& records, Deadline deadline) {
  Records whole;
  Records pieces;
  Status status = co_await load_below("r", kRecordsPage, whole, deadline);
  if (status.ok()) status = co_await load_below("l", kPiecesPage, pieces, deadline);
  if (!status.ok()) co_return status;
  for (const auto& [key, value] : whole) {
    const std::string name = key.substr(1);
    const std::string_view text = as_text(value);
    const Status malformed = failed_precondition(
        cat("the record '", printable(key), "' below ", printable(root_), " in etcd is malformed"));
    if (text.starts_with(kWhole)) {
      records.emplace(name, to_bytes(text.substr(1)));
      continue;
    }
    const size_t space = text.find(' ');
    if (!text.starts_with(kInPieces) || space == std::string_view::npos) co_return malformed;
    const std::string prefix(text.substr(space + 1));
    Bytes record;
    for (auto piece = pieces.lower_bound(prefix);
         piece != pieces.end() && piece->first.starts_with(prefix);) {
      record.insert(record.end(), piece->second.begin(), piece->second.end());
      piece = pieces.erase(piece);
    }
    const auto size = parse_int(text.substr(1, space - 1));
    if (!size || static_cast<uint64_t>(*size) != record.size()) co_return malformed;
    records.emplace(name, std::move(record));
    pieces_.emplace(name, prefix);
  }
  // Of records that the server before did not come to write.
  for (const auto& [key, piece] : pieces) {
    open_.changes.emplace(root_ + key, std::nullopt);
    seal();
  }
  co_return Status();
}

net::Task<Result<OpenedStore>> open_store(asio::any_io_executor executor, Url url,
                                          const Secret& secret, std::chrono::seconds lifetime,
                                          Deadline deadline) {
  const auto store = std::make_shared<EtcdStore>(executor, std::move(url), secret, lifetime);
  Result<Records> records = co_await store->take_over(deadline);
  if (!records.ok()) co_return records.status();
  OpenedStore opened;
  opened.store = store;
  opened.records = std::move(*records);
  co_return opened;
}

}  // namespace hvd::rendezvous::etcd
