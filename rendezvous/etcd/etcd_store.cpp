#include "rendezvous/etcd/etcd_store.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log/log.h"
#include "base/text.h"
#include "rendezvous/etcd/etcd_text.h"

namespace hvd::rendezvous::etcd {
namespace {

namespace asio = net::asio;

// etcd accepts by default 128 operations in a transaction and 1.5 MiB in a request.
constexpr size_t kMostChanges = 120;
constexpr size_t kMostBytes = 1024 * 1024;
// A larger record is stored in pieces.
constexpr size_t kLargestWhole = kMostBytes / DurableStore::kMostTogether;
// The longest pause between two keep-alive requests. Within this time, a server notices that another server has taken
// over its job.
constexpr std::chrono::milliseconds kLongestPulse{5000};
constexpr double kTimeToEnd = 3;

}  // namespace

EtcdStore::EtcdStore(asio::any_io_executor executor, Url url, const Secret& secret,
                     std::chrono::seconds lifetime)
    : executor_(executor),
      url_(std::move(url)),
      lifetime_(lifetime),
      client_(std::make_shared<EtcdClient>(executor, url_.endpoints, url_.access)),
      lease_client_(std::make_shared<EtcdClient>(executor, url_.endpoints, url_.access)),
      wake_(executor, asio::steady_timer::time_point::max()),
      done_(executor, asio::steady_timer::time_point::max()),
      pulse_(executor) {
  const std::string digits = to_hex(secret.sign(as_bytes("horovod-rendezvous-1 etcd\n")));
  fingerprint_ = digits.substr(0, 32);
  root_ = (url_.prefix.empty() ? "/horovod/" + digits.substr(32, 16) : url_.prefix) + "/";
  std::array<std::byte, 8> random{};
  fill_random(random);
  server_ = to_hex(random);
}

void EtcdStore::put(std::string name, Bytes record) {
  forget_pieces(name);
  std::string value =
      record.size() <= kLargestWhole ? whole_value(record) : write_pieces(name, std::move(record));
  open_.bytes += name.size() + value.size();
  open_.changes.insert_or_assign(cat(root_, "r", name), std::move(value));
}

// Each piece is a separate group, before the group with the record. No record names the pieces
// until all of them are stored.
std::string EtcdStore::write_pieces(const std::string& name, Bytes record) {
  const std::string prefix = cat("l", server_, next_piece_++, "/");
  for (size_t begin = 0; begin < record.size(); begin += kMostBytes) {
    const std::string_view piece = as_text(record).substr(begin, kMostBytes);
    Group group;
    group.bytes = piece.size();
    group.changes.emplace(cat(root_, piece_key(prefix, begin / kMostBytes)), piece);
    enqueue(std::move(group));
  }
  pieces_[name] = prefix;
  return value_in_pieces(record.size(), prefix);
}

void EtcdStore::forget_pieces(const std::string& name) {
  const auto found = pieces_.find(name);
  if (found == pieces_.end()) return;
  stale_.push_back(std::move(found->second));
  pieces_.erase(found);
}

void EtcdStore::remove(std::string name) {
  forget_pieces(name);
  open_.bytes += name.size();
  open_.changes.insert_or_assign(cat(root_, "r", name), std::nullopt);
}

void EtcdStore::remove_below(std::string prefix) {
  for (auto name = pieces_.lower_bound(prefix);
       name != pieces_.end() && name->first.starts_with(prefix);) {
    stale_.push_back(std::move(name->second));
    name = pieces_.erase(name);
  }
  open_.removed_prefix = cat(root_, "r", prefix);
}

void EtcdStore::seal() {
  if (!open_.changes.empty() || !open_.removed_prefix.empty()) enqueue(std::exchange(open_, {}));
  for (const std::string& prefix : std::exchange(stale_, {})) {
    Group group;
    group.removed_prefix = root_ + prefix;
    enqueue(std::move(group));
  }
}

void EtcdStore::enqueue(Group group) {
  group.number = ++last_group_;
  queue_.push_back(std::move(group));
  wake_.cancel();
}

net::Task<bool> EtcdStore::confirm() {
  seal();
  // A queued transaction also proves that this server owns the job; an empty transaction serves only this purpose.
  if (queue_.empty()) enqueue({});
  const uint64_t wanted = last_group_;
  const auto self = shared_from_this();
  while (!is_over_ && done_group_ < wanted) co_await done_.async_wait(net::use_tuple);
  co_return done_group_ >= wanted;
}

EtcdStore::Group EtcdStore::next_batch() {
  Group batch = std::move(queue_.front());
  queue_.pop_front();
  while (!queue_.empty() && batch.removed_prefix.empty()) {
    Group& next = queue_.front();
    if (!next.removed_prefix.empty() || batch.bytes + next.bytes > kMostBytes ||
        batch.changes.size() + next.changes.size() > kMostChanges) {
      break;
    }
    for (auto& [key, value] : next.changes) batch.changes.insert_or_assign(key, std::move(value));
    batch.bytes += next.bytes;
    batch.number = next.number;
    queue_.pop_front();
  }
  return batch;
}

net::Task<void> EtcdStore::run() {
  const auto self = shared_from_this();
  while (!is_over_) {
    if (queue_.empty()) {
      co_await wake_.async_wait(net::use_tuple);
      continue;
    }
    const Group batch = next_batch();
    const Status status = co_await commit(batch);
    if (is_over_) co_return;
    if (!status.ok()) {
      lose(status);
      co_return;
    }
    done_group_ = batch.number;
    done_.cancel();
  }
}

net::Task<Status> EtcdStore::commit(const Group& batch) {
  const bool changes = !batch.changes.empty() || !batch.removed_prefix.empty();
  const std::string owner = changes ? owner_value(count_ + 1) : owner_;
  const std::string owner_key = root_ + "owner";
  Txn txn;
  txn.key = owner_key;
  txn.value = owner_;
  txn.removed_prefix = batch.removed_prefix;
  txn.lease = lease_;
  for (const auto& [key, value] : batch.changes) txn.changes.emplace(key, value);
  if (changes) txn.changes.emplace(owner_key, owner);
  const Result<Bytes> answer =
      co_await client_->call("/v3/kv/txn", txn_request(txn), Deadline::never());
  // kNotFound: the lease has expired, and etcd has removed its keys.
  const bool is_gone = answer.status().code() == Code::kNotFound;
  if (!answer.ok() && !is_gone) co_return answer.status();
  std::optional<std::string> held;
  if (!is_gone) {
    Result<TxnAnswer> done = parse_txn(*answer);
    if (!done.ok()) co_return done.status();
    // An earlier attempt changed the key, and its answer was lost.
    if (!done->is_done && changes && done->held == owner) done->is_done = true;
    if (done->is_done) {
      owner_ = owner;
      if (changes) ++count_;
      co_return Status();
    }
    held = std::move(done->held);
  }
  co_return aborted(
      held ? cat("another rendezvous server has taken over the job that etcd keeps below ", root_,
                 ": this one ends")
           : cat("etcd has lost the job below ", root_,
                 ": its keys were removed, or this server did not reach etcd for ",
                 lifetime_.count(), " s; start the job again"));
}

net::Task<void> EtcdStore::keep_alive() {
  const auto self = shared_from_this();
  const auto pause = std::min(std::chrono::milliseconds(lifetime_) / 4, kLongestPulse);
  while (!is_over_) {
    pulse_.expires_after(pause);
    co_await pulse_.async_wait(net::use_tuple);
    if (is_over_) co_return;
    const Result<Bytes> answer = co_await lease_client_->call(
        "/v3/lease/keepalive", lease_request(lease_), Deadline::never());
    if (!answer.ok() && !is_over_) log::warning(answer.status().message());
    // Detects whether another server has the job or the lease is gone. Otherwise requests that wait
    // at this server would wait forever.
    co_await confirm();
  }
}

void EtcdStore::lose(Status why) {
  stop();
  if (const auto on_lost = std::exchange(on_lost_, nullptr)) on_lost(std::move(why));
}

void EtcdStore::stop() {
  if (std::exchange(is_over_, true)) return;
  client_->stop();
  lease_client_->stop();
  wake_.cancel();
  done_.cancel();
  pulse_.cancel();
}

void EtcdStore::end() {
  if (is_over_) return;
  stop();
  asio::co_spawn(
      executor_, [self = shared_from_this()] { return self->remove_all(); }, asio::detached);
}

// Removes all keys unless another server has the job. If the removal fails, etcd removes the keys
// when the lease expires.
net::Task<void> EtcdStore::remove_all() {
  const auto client = std::make_shared<EtcdClient>(executor_, url_.endpoints, url_.access);
  const Deadline deadline = Deadline::after_seconds(kTimeToEnd);
  const std::string key = root_ + "owner";
  Result<Bytes> answer =
      co_await client->call("/v3/kv/range", range_request(key, range_end_of(key), 1), deadline);
  if (answer.ok()) {
    const Result<Range> owner = parse_range(*answer);
    const std::string own = owner_value(0);
    const bool is_own =
        owner.ok() && !owner->found.empty() &&
        owner->found.front().value.starts_with(std::string_view(own).substr(0, own.size() - 1));
    if (!is_own) co_return;
    answer = co_await client->call("/v3/lease/revoke", lease_request(lease_), deadline);
  }
  if (!answer.ok()) log::warning(answer.status().message());
}

namespace {

constexpr std::string_view kFormat = "horovod-rendezvous-1";
// Keys per request for whole records and for pieces: at most some 20 MiB in each answer.
constexpr int kRecordsPage = 1000;
constexpr int kPiecesPage = 16;

// The value of the key `owner`: "horovod-rendezvous-1 <fingerprint> <lease> <server> <count>".
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
  // From here on no other server writes below root_.
  Records records;
  const Status loaded = co_await load(records, deadline);
  if (!loaded.ok()) co_return loaded;
  asio::co_spawn(
      executor_, [self] { return self->run(); }, asio::detached);
  asio::co_spawn(
      executor_, [self] { return self->keep_alive(); }, asio::detached);
  co_return records;
}

// Returns false if the caller must try again: another server has changed the key `owner`, or the lease has expired.
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
              ", with another token: give this job its own prefix (--backend "
              "etcd://HOST/PREFIX), or use the token of the other job"));
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
  Result<JoinedRecords> joined = join_records(whole, std::move(pieces));
  if (!joined.ok()) {
    co_return joined.status().with_context(
        cat("the job below ", printable(root_), " in etcd cannot be read"));
  }
  records = std::move(joined->records);
  pieces_ = std::move(joined->prefixes);
  // Remove pieces without a record: the earlier server ended before it wrote the record.
  for (const auto& [key, piece] : joined->stale) {
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
