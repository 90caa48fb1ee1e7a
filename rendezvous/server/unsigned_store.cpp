#include "rendezvous/server/unsigned_store.h"

#include <algorithm>
#include <utility>

#include "rendezvous/store/store.h"

namespace hvd::rendezvous {
namespace {

// A member r of a rendezvous stores its host's name under "rank_<r>", then its addresses under "<r>".
constexpr std::string_view kNamePrefix = "rank_";
// Part of the scope names of process sets, whose numbers of members are unknown in advance.
constexpr std::string_view kSetMark = "process_set_hash_";
// The memory of an entry in addition to its bytes.
constexpr size_t kEntryBytes = 256;
constexpr size_t kPairBytes = 256;

// Returns "3" for the keys "3" and "rank_3"; empty if the key belongs to no member.
std::string_view member_of(std::string_view key) {
  if (key.starts_with(kNamePrefix)) key.remove_prefix(kNamePrefix.size());
  const bool is_number =
      std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? key : std::string_view();
}

}  // namespace

UnsignedStore::UnsignedStore(ScopeSizes sizes, UnsignedLimits limits)
    : sizes_(std::move(sizes)), limits_(limits) {
  if (const auto all = sizes_.find("global"); all != sizes_.end()) {
    const auto workers = static_cast<size_t>(all->second);
    limits_.total_bytes = std::max(limits_.total_bytes, kPairBytes * workers * workers);
  }
}

UnsignedStore::Room UnsignedStore::take(size_t bytes) {
  *taken_ += bytes;
  return Room(taken_.get(), [taken = taken_, bytes](const void*) { *taken -= bytes; });
}

UnsignedStore::Room UnsignedStore::take_room(size_t bytes) {
  if (bytes > limits_.total_bytes || *taken_ > limits_.total_bytes - bytes) return nullptr;
  return take(bytes);
}

bool UnsignedStore::knows(std::string_view method) {
  return method == "GET" || method == "PUT" || method == "DELETE";
}

UnsignedStore::Answer UnsignedStore::answer(std::string_view method, std::string_view target,
                                            Bytes body) {
  if (!knows(method)) return {501, nullptr};
  // "/scope/key": neither part is empty or contains another slash.
  const size_t slash = target.find('/', 1);
  if (!target.starts_with('/') || slash == std::string_view::npos) return {400, nullptr};
  const std::string_view name = target.substr(1, slash - 1);
  const std::string_view key = target.substr(slash + 1);
  if (key.find('/') != std::string_view::npos || !check_key(name).ok() || !check_key(key).ok()) {
    return {400, nullptr};
  }
  if (method == "PUT") return {put(std::string(name), key, std::move(body)), nullptr};
  if (method == "DELETE") {
    remove(name, key);
    return {};
  }
  const auto scope = scopes_.find(name);
  if (scope == scopes_.end()) return {404, nullptr};
  const auto found = scope->second.values.find(key);
  if (found == scope->second.values.end()) return {404, nullptr};
  return {200, found->second};
}

int UnsignedStore::put(const std::string& name, std::string_view key, Bytes body) {
  if (body.size() > limits_.value_bytes) return 413;
  const Room room = take_room(kEntryBytes + name.size() + key.size() + body.size());
  if (!room) return 507;
  Scope& scope = scopes_[name];
  const std::string_view member = member_of(key);
  if (scope.left.contains(member)) {
    // A member that has left returns before the last member leaves, and begins the next
    // rendezvous, which must not find the values of this one. No member still needs these values:
    // members leave only after all have arrived.
    for (const auto& [other, value] : scope.values) {
      const std::string_view whose = member_of(other);
      if (whose.empty() || scope.left.contains(whose)) continue;
      scope.staying.emplace(whose, take(kEntryBytes + whose.size()));  // less than the value frees
    }
    scope.values.clear();
    scope.left.clear();
  }
  // This member ended without leaving, and was started again.
  if (const auto found = scope.staying.find(member); found != scope.staying.end()) {
    scope.staying.erase(found);
  }
  // The memory is freed after the last reply with this value was sent.
  scope.values.insert_or_assign(
      std::string(key),
      ValuePtr(new Value{std::move(body), {}}, [room](const Value* value) { delete value; }));
  return 200;
}

void UnsignedStore::remove(std::string_view name, std::string_view key) {
  const auto found = scopes_.find(name);
  if (found == scopes_.end()) return;
  Scope& scope = found->second;
  if (const auto staying = scope.staying.find(key); staying != scope.staying.end()) {
    scope.staying.erase(staying);
    return;
  }
  const size_t members = members_of(name, scope);
  if (members == 0) {
    if (const auto value = scope.values.find(key); value != scope.values.end()) {
      scope.values.erase(value);
    }
    if (scope.values.empty()) scopes_.erase(found);
    return;
  }
  scope.left.emplace(key);
  if (scope.left.size() >= members) scopes_.erase(found);
}

// Returns 0 if the scope has no members; DELETE then removes one key.
size_t UnsignedStore::members_of(std::string_view name, const Scope& scope) const {
  const auto planned = sizes_.find(name);
  if (planned != sizes_.end()) return static_cast<size_t>(planned->second);
  const bool is_rendezvous =
      name == "global" || name.starts_with("local_") || name.starts_with("cross_");
  if (!is_rendezvous || name.find(kSetMark) != std::string_view::npos) return 0;
  // The first member leaves after all have arrived, and each has then stored its name.
  return static_cast<size_t>(
      std::count_if(scope.values.begin(), scope.values.end(), [](const auto& entry) {
        return entry.first.starts_with(kNamePrefix) && !member_of(entry.first).empty();
      }));
}

}  // namespace hvd::rendezvous
