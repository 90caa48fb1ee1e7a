#include "runtime/core/group_runner.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/text.h"
#include "runtime/execution/batch_run.h"
#include "runtime/submission/group_call_check.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

// Groups share the mesh with process sets, whose ids are not negative.
constexpr int32_t kGroupId = -2;

uint64_t key_of(const std::vector<int32_t>& ranks, uint64_t ordinal) {
  uint64_t key = 14695981039346656037u;  // FNV-1a
  const auto add = [&key](uint64_t number) { key = (key ^ number) * 1099511628211u; };
  add(ordinal);
  for (const int32_t rank : ranks) add(static_cast<uint64_t>(rank));
  return key;
}

// The fields of a record, in order. The reduction and the tag share one field.
enum Field : size_t { kNumber, kOp, kDtype, kReduceOpAndTag, kCount, kRoot, kPrescale, kPostscale };

collectives::CallRecord record_of(const Submission& call) {
  const Request& request = call.request;
  const GroupOp op = group_op(call.group.op);
  collectives::CallRecord record{};
  record[kNumber] = call.group.number;
  record[kOp] = static_cast<uint64_t>(call.group.op);
  const int32_t reduce_op = op.reduces ? request.reduce_op : 0;
  record[kReduceOpAndTag] = static_cast<uint64_t>(static_cast<uint32_t>(call.group.tag)) << 32 |
                            static_cast<uint32_t>(reduce_op);
  if (call.group.op == HVD_BARRIER) return record;
  record[kDtype] = static_cast<uint64_t>(request.tensors[0].dtype);
  // The counts of an alltoall are compared pair by pair, so they are not in the record.
  record[kCount] = call.group.op == HVD_ALLTOALL ? 0 : static_cast<uint64_t>(call.group.count);
  record[kRoot] = static_cast<uint64_t>(request.root);
  record[kPrescale] = std::bit_cast<uint64_t>(request.prescale);
  record[kPostscale] = std::bit_cast<uint64_t>(request.postscale);
  return record;
}

std::string text_of(const collectives::CallRecord& record) {
  const auto number = static_cast<int32_t>(record[kOp]);
  const GroupOp op = group_op(number);
  std::string text(op.name);
  if (number != HVD_BARRIER && number != HVD_ALLTOALL)
    text += cat(" of ", record[kCount], record[kCount] == 1 ? " element" : " elements");
  if (number != HVD_BARRIER) text += cat(" of ", dtype_name(static_cast<int32_t>(record[kDtype])));
  if (op.reduces) {
    text += cat(" (", reduce_op_name(static_cast<int32_t>(record[kReduceOpAndTag])));
    const auto before = std::bit_cast<double>(record[kPrescale]);
    const auto after = std::bit_cast<double>(record[kPostscale]);
    if (before != 1 || after != 1) text += cat(", factors ", before, " and ", after);
    text += ")";
  }
  const auto tag = static_cast<int32_t>(record[kReduceOpAndTag] >> 32);
  if (tag != 0) text += cat(" with tag ", tag);
  const std::string_view side = op.root_writes ? " to rank " : " from rank ";
  if (op.has_root) text += cat(side, static_cast<int32_t>(record[kRoot]));
  return text;
}

}  // namespace

struct GroupRunner::Group {
  std::shared_ptr<const GroupMembers> members;
  uint64_t key = 0;
  uint64_t started = 0;           // calls that this rank has made
  uint64_t completed = 0;         // completed calls
  Status failure;                 // failure of the group and of its later calls
  std::deque<Submission*> calls;  // not complete; the first one runs

  // The current call.
  hvd_batch batch{};
  hvd_batch_tensor tensor{};
  WideAverage wide;
  std::vector<int64_t> rows;
  collectives::CheckedCall checked;
  uint32_t traced = 0;  // number in the timeline; 0: not recorded

  // Declared last: the flow and the links are destroyed before the other fields, which they use.
  std::unique_ptr<collectives::Group> links;
  collectives::Flow flow;

  // Prepares an average: the batch becomes a sum, of a wider type if sum_type_of_average() has one.
  Status make_average() {
    const size_t count = members->ranks.size();
    if (batch.postscale == 1) batch.divisor = static_cast<int32_t>(count);
    batch.postscale /= static_cast<double>(count);
    const int32_t dtype = std::exchange(batch.dtype, sum_type_of_average(batch.dtype));
    if (dtype == batch.dtype) return {};
    return wide.widen(dtype, batch.dtype, {&calls.front()->group.count, 1}, {&tensor, 1});
  }
};

GroupRunner::GroupRunner(const Parts& parts) : parts_(parts) {}
GroupRunner::~GroupRunner() = default;

Result<std::shared_ptr<const GroupMembers>> GroupRunner::create(std::string name,
                                                                std::vector<int32_t> ranks) {
  if (mesh_ == nullptr) {
    return unimplemented(
        "groups need the links of the built-in controller; unset HOROVOD_CONTROLLER");
  }
  const uint64_t ordinal = made_[ranks]++;
  auto group = std::make_unique<Group>();
  group->members =
      std::make_shared<const GroupMembers>(GroupMembers{next_id_++, std::move(name), ranks});
  group->key = key_of(ranks, ordinal);
  group->links = std::make_unique<collectives::Group>(*mesh_, kGroupId, std::move(ranks),
                                                      static_cast<uint32_t>(ordinal));
  group->links->may_be_refused = true;
  const auto members = group->members;
  check_ends(*group);
  groups_.emplace(members->id, std::move(group));
  in_use_.store(true, std::memory_order_release);
  return members;
}

Result<std::vector<GroupEnd>> GroupRunner::destroy(int32_t id) {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return not_found(cat("group ", id, " does not exist"));
  Group& group = *found->second;
  fail_calls(group, aborted(cat("group ", group.members->name, " was destroyed")));
  group.flow.drop();
  std::vector<GroupEnd> ends;
  add_end(group, true, ends);
  group.links->release_sub_region();
  const uint64_t key = group.key;
  destroyed_.emplace(key, Destroyed{group.members, std::move(group.links)});
  groups_.erase(found);
  close_if_ended(key);
  return ends;
}

void GroupRunner::start(Submission* call) {
  call->accepted = true;
  const auto found = groups_.find(call->group.members->id);
  if (found == groups_.end()) {
    parts_.sink->complete(call,
                          not_found(cat("group ", call->group.members->name, " was destroyed")));
    return;
  }
  Group& group = *found->second;
  call->group.number = ++group.started;
  check_ends(group);
  check_members(group);
  if (!group.failure.ok()) {
    parts_.sink->complete(call, group.failure);
    return;
  }
  group.calls.push_back(call);
  if (group.calls.size() == 1) begin(group);
}

// Returns the elements to and from each member of a gather or scatter, which runs as an alltoall.
std::vector<int64_t> GroupRunner::counts_of(const Group& group, const Submission& call) const {
  const auto& ranks = group.members->ranks;
  const size_t members = ranks.size();
  const auto root =
      static_cast<size_t>(std::ranges::find(ranks, call.request.root) - ranks.begin());
  const bool is_root = call.request.root == mesh_->rank();
  const bool gathers = call.group.op == HVD_GROUP_GATHER;
  std::vector<int64_t> counts(2 * members, 0);
  const size_t all = gathers ? members : 0, one = gathers ? 0 : members;  // where the halves begin
  if (is_root) std::fill_n(counts.begin() + static_cast<ptrdiff_t>(all), members, call.group.count);
  counts[one + root] = call.group.count;
  return counts;
}

// Starts calls until a call must wait.
void GroupRunner::begin(Group& group) {
  while (!group.calls.empty() && !group.flow.running()) {
    const Submission& call = *group.calls.front();
    const Request& request = call.request;
    const size_t members = group.members->ranks.size();
    group.batch = {};
    hvd_batch& batch = group.batch;
    batch.struct_size = sizeof batch;
    batch.op = request.op;
    batch.dtype =
        request.op == HVD_BARRIER ? static_cast<int32_t>(HVD_UINT8) : request.tensors[0].dtype;
    batch.device = HVD_CPU;
    batch.reduce_op = request.reduce_op == HVD_AVERAGE ? HVD_SUM : request.reduce_op;
    batch.prescale = request.prescale;
    batch.postscale = request.postscale;
    const auto& ranks = group.members->ranks;
    const auto root = std::ranges::find(ranks, request.root);
    batch.root = static_cast<int32_t>(root - ranks.begin());
    group.tensor = {call.group.input, call.group.output, call.group.count, 1, nullptr, nullptr};
    if (request.op == HVD_ALLGATHER) {
      group.rows.assign(members, call.group.count);
    } else if (request.op == HVD_REDUCESCATTER) {
      group.tensor.count = call.group.count * static_cast<int64_t>(members);
    } else if (request.op == HVD_ALLTOALL) {
      group.rows = call.group.op == HVD_ALLTOALL ? call.group.counts : counts_of(group, call);
      group.tensor.from_rows = group.rows.data() + members;
    }
    if (request.op == HVD_ALLGATHER || request.op == HVD_ALLTOALL) {
      group.tensor.rank_rows = group.rows.data();
    }
    if (request.reduce_op == HVD_AVERAGE) {
      if (const Status status = group.make_average(); !status.ok()) {
        return fail_calls(group, status);
      }
    }
    batch.tensor_count = request.op == HVD_BARRIER ? 0 : 1;
    batch.tensors = &group.tensor;
    group.traced = parts_.instruments->trace.start_call(call);
    group.checked.record = record_of(call);
    group.checked.counts = call.group.counts;
    group.flow.start(collectives::run_checked(group.flow, *group.links, batch, group.checked));
    if (!group.flow.running()) finish(group);
  }
}

void GroupRunner::end_trace(Group& group) {
  parts_.instruments->trace.end_batch(std::exchange(group.traced, 0));
}

void GroupRunner::finish(Group& group) {
  if (!group.checked.failure.ok()) {
    fail_calls(group, group.checked.failure.with_context(cat("group ", group.members->name)));
    return;
  }
  end_trace(group);
  Submission* const call = group.calls.front();
  group.calls.pop_front();
  ++group.completed;
  call->planned = true;
  note_wait(group, *call);
  const Status status = group.checked.is_same ? Status() : difference(group);
  if (status.ok()) group.wide.narrow();
  group.wide.clear();
  group.checked.records.clear();
  parts_.sink->complete(call, status);
  if (!ends_.empty()) check_ends(group);
}

// Counts the wait until all members had announced the call, as PlanApplication does for a name.
void GroupRunner::note_wait(const Group& group, const Submission& call) {
  const auto waited = group.checked.met - call.since;
  parts_.instruments->metrics->agreed(waited);
  if (call.group.begins_step) {
    parts_.instruments->metrics->stepped(group.checked.met);
    parts_.instruments->steps->step_ended(group.checked.met, *parts_.instruments->metrics, 0,
                                          static_cast<uint32_t>(group.completed));
  }
  // Count only groups of all ranks, as PlanApplication counts only the set of all ranks.
  if (group.members->ranks.size() == static_cast<size_t>(mesh_->size()))
    parts_.instruments->steps->wait_ended(waited);
}

std::vector<GroupCalls> GroupRunner::calls() const {
  std::vector<GroupCalls> calls;
  for (const auto& [id, group] : groups_) calls.push_back({group->members->name, group->completed});
  return calls;
}

// Returns the error for calls that differ; all members return the same error.
Status GroupRunner::difference(const Group& group) const {
  const auto& ranks = group.members->ranks;
  const auto& checked = group.checked;
  const std::string call =
      cat("group ", group.members->name, ", call ", group.completed, ": rank ");
  const auto& records = checked.records;
  const auto other =
      std::ranges::find_if(records, [&](const auto& one) { return one != records[0]; });
  if (other != records.end()) {
    const auto index = static_cast<size_t>(other - records.begin());
    return invalid_argument(cat(call, ranks[0], " calls ", text_of(records[0]), ", and rank ",
                                ranks[index], " calls ", text_of(*other)));
  }
  const auto pair = collectives::differing_pair(checked.all_counts, ranks.size());
  if (!pair)
    return internal_error(cat(call, ranks[0], " has found a difference that is not there"));
  const auto [from, to] = *pair;
  const size_t row = 2 * ranks.size();
  return invalid_argument(cat(call, ranks[from], " sends ", checked.all_counts[from * row + to],
                              " elements to rank ", ranks[to], ", which expects ",
                              checked.all_counts[to * row + ranks.size() + from]));
}

void GroupRunner::advance(bool* moved) {
  for (const auto& [id, group] : groups_) {
    if (group->calls.empty() || !group->flow.poll()) continue;
    *moved = true;
    if (group->flow.running()) continue;
    finish(*group);
    begin(*group);
  }
}

bool GroupRunner::may_sleep() {
  return std::ranges::none_of(groups_, [](const auto& entry) {
    return !entry.second->calls.empty() && entry.second->flow.ready();
  });
}

void GroupRunner::fail_calls(Group& group, const Status& why) {
  group.failure = why;
  if (!group.calls.empty()) group.flow.drop();
  group.wide.clear();
  end_trace(group);
  while (!group.calls.empty()) {
    Submission* const call = group.calls.front();
    group.calls.pop_front();
    parts_.sink->complete(call, why);
  }
}

void GroupRunner::member_left(const GroupEnd& end) {
  ends_.push_back(end);
  for (const auto& [id, group] : groups_) check_ends(*group);
  close_if_ended(end.key);
}

void GroupRunner::close_if_ended(uint64_t key) {
  const auto found = destroyed_.find(key);
  if (found == destroyed_.end()) return;
  const auto is_of_group = [key](const GroupEnd& end) { return end.key == key; };
  const auto others = found->second.members->ranks.size() - 1;
  if (static_cast<size_t>(std::ranges::count_if(ends_, is_of_group)) < others) return;
  std::erase_if(ends_, is_of_group);
  found->second.links->retire();
  destroyed_.erase(found);
}

// Fails the calls that a leaving member has not completed, once this rank's earlier calls are complete.
void GroupRunner::check_ends(Group& group) {
  for (const GroupEnd& end : ends_) {
    if (end.key != group.key || group.completed < end.calls) continue;
    if (group.started <= end.calls) continue;
    const std::string call = cat("group ", group.members->name, ", call ", group.completed + 1);
    fail_calls(group, end.is_destroyed ? aborted(cat(call, " cannot run: rank ", end.rank,
                                                     " has destroyed the group"))
                                       : parts_.shutdown->refuse_message(call, end.rank));
    return;
  }
}

bool GroupRunner::has_left(int32_t rank) const {
  return parts_.shutdown->has_left(rank) || mesh_->departed(rank);
}

void GroupRunner::check_members() {
  for (const auto& [id, group] : groups_) check_members(*group);
}

void GroupRunner::check_members(Group& group) {
  if (!parts_.shutdown->is_ending() || !group.failure.ok()) return;
  for (const int32_t rank : group.members->ranks) {
    const auto is_end = [&](const GroupEnd& end) {
      return end.rank == rank && end.key == group.key;
    };
    if (!has_left(rank) || std::ranges::any_of(ends_, is_end)) continue;
    fail_calls(group,
               parts_.shutdown->refuse_message(
                   cat("group ", group.members->name, ", call ", group.completed + 1), rank));
    return;
  }
}

std::vector<GroupEnd> GroupRunner::end(const Status& why) {
  std::vector<GroupEnd> ends;
  for (const auto& [id, group] : groups_) {
    fail_calls(*group, why.with_context(cat("group ", group->members->name, ", call ",
                                            group->completed + 1, " cannot run")));
    add_end(*group, false, ends);
  }
  return ends;
}

void GroupRunner::add_end(const Group& group, bool is_destroyed,
                          std::vector<GroupEnd>& ends) const {
  for (const int32_t rank : group.members->ranks) {
    if (rank != mesh_->rank()) ends.push_back({rank, group.key, group.completed, is_destroyed});
  }
}

void GroupRunner::fail(const Status& why) {
  for (const auto& [id, group] : groups_) {
    group->failure = why;
    if (!group->calls.empty()) group->flow.drop();
    group->calls.clear();
  }
  in_use_.store(false, std::memory_order_release);
}

void GroupRunner::close() {
  in_use_.store(false, std::memory_order_release);
  groups_.clear();
  destroyed_.clear();
  mesh_.reset();
}

}  // namespace hvd::runtime
