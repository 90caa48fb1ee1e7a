#include "runtime/telemetry/trace_recorder.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/submission/tensor_table.h"

namespace hvd::runtime {
namespace {

constexpr size_t kMostDimensions = 255;

constexpr size_t kMostCalls = 4096;

}  // namespace

void encode(const TraceName& name, ByteWriter& out) {
  out.put_text(std::string_view(name.text).substr(0, kLongestTraceName));
  out.put(name.process_set).put(name.op).put(static_cast<uint32_t>(name.tensors.size()));
  for (const TensorSpec& tensor : name.tensors) {
    const size_t ndim = std::min(tensor.shape.size(), kMostDimensions);
    out.put(static_cast<uint8_t>(tensor.dtype)).put(static_cast<uint8_t>(ndim));
    for (size_t i = 0; i < ndim; ++i) out.put(tensor.shape[i]);
  }
}

Status decode(ByteView bytes, TraceName* name) {
  ByteReader in(bytes);
  name->text = in.get_text();
  name->process_set = in.get<int32_t>();
  name->op = in.get<int32_t>();
  name->tensors.assign(in.get_count(2), {});
  for (TensorSpec& tensor : name->tensors) {
    tensor.dtype = in.get<uint8_t>();
    const size_t ndim = in.get<uint8_t>();
    if (ndim > in.left() / sizeof(int64_t)) return invalid_argument("a shape is cut short");
    tensor.shape.resize(ndim);
    for (int64_t& extent : tensor.shape) extent = in.get<int64_t>();
  }
  if (name->text.size() > kLongestTraceName) return invalid_argument("a name is too long");
  return in.finish("the meaning of a name");
}

void TraceRecorder::start(bool mark_cycles) {
  mark_cycles_ = mark_cycles;
  ++run_;
  next_name_ = 1;
  dropped_ = 0;
  words_.clear();
  calls_.clear();
  slots_.clear();
  slots_.reserve(kSlots);
  on_ = true;
}

void TraceRecorder::take(std::vector<TraceSlot>* slots) {
  slots->clear();
  slots->swap(slots_);
  if (on_) slots_.reserve(kSlots);
}

bool TraceRecorder::add(const TraceSlot& slot) {
  if (slots_.size() >= kSlots) {
    ++dropped_;
    return false;
  }
  if (slots_.empty()) since_ = Clock::now();
  slots_.push_back(slot);
  return true;
}

bool TraceRecorder::add_record(TraceSlot slot, ByteView bytes) {
  const size_t behind = slots_of(bytes.size());
  if (slots_.size() + 1 + behind > kSlots) {
    ++dropped_;
    return false;
  }
  slot.time = static_cast<int64_t>(bytes.size());
  add(slot);
  const size_t at = slots_.size();
  slots_.resize(at + behind);
  if (!bytes.empty()) std::memcpy(static_cast<void*>(&slots_[at]), bytes.data(), bytes.size());
  return true;
}

bool TraceRecorder::is_known(const Submission& submission) const {
  return submission.name->traced_in == run_;
}

// Assigns a number to the submission's name, and returns it, or 0 if the memory is full.
uint32_t TraceRecorder::add_name(const Submission& submission) {
  return add_name(TraceName{name_text(submission), submission.process_set, submission.request.op,
                            submission.request.tensors});
}

uint32_t TraceRecorder::add_name(const TraceName& name) {
  bytes_.clear();
  encode(name, bytes_);
  return add_record({0, next_name_, TraceKind::kName}, bytes_.view()) ? next_name_++ : 0;
}

bool TraceRecorder::define(const Submission& submission) {
  Name* name = submission.name;
  name->traced_as = add_name(submission);
  name->traced_in = name->traced_as == 0 ? 0 : run_;
  return name->traced_as != 0;
}

bool TraceRecorder::define(Submission* message) {
  message->message.traced_as = add_name(*message);
  message->message.traced_in = message->message.traced_as == 0 ? 0 : run_;
  return message->message.traced_as != 0;
}

void TraceRecorder::note_wait(Submission* message) {
  if (define(message)) add({now(), message->message.traced_as, TraceKind::kNegotiate});
}

uint32_t TraceRecorder::note_transfer(Submission* message, bool is_local) {
  auto& traced = message->message;
  // The message may have waited since before the start of the timeline: define its name now.
  if (traced.traced_in != run_ && !define(message)) return 0;
  const TensorSpec& spec = message->request.tensors[0];
  const auto op = static_cast<uint8_t>(message->request.op);
  const uint32_t batch = next_batch_++;
  if (!add({now(), batch, TraceKind::kBatch, op, static_cast<uint8_t>(spec.dtype)})) return 0;
  add({0, traced.traced_as, TraceKind::kMember});
  const bool sends = op == HVD_SEND;
  note_activity(batch,
                is_local ? (sends ? "SHM_SEND" : "SHM_RECV") : (sends ? "TCP_SEND" : "TCP_RECV"));
  traced.traced_in = 0;  // the next message that reuses this Submission has another name
  return batch;
}

uint32_t TraceRecorder::note_call(const Submission& call) {
  const auto& group = call.group;
  // Marks an operation of a group, whose number has another meaning in process sets.
  constexpr int32_t kNoSet = -1;
  TraceName name{cat("group ", group.members->name), kNoSet, group.op, call.request.tensors};
  uint8_t dtype = 0;
  if (!name.tensors.empty()) {
    dtype = static_cast<uint8_t>(name.tensors[0].dtype);
    name.tensors[0].shape = {group.count};
  }
  if (calls_.size() >= kMostCalls) calls_.clear();
  const std::array<int64_t, 4> key{group.members->id, group.op, dtype, group.count};
  uint32_t& traced_as = calls_[key];
  if (traced_as == 0) traced_as = add_name(name);
  if (traced_as == 0) return 0;
  const uint32_t batch = next_batch_++;
  if (!add({now(), batch, TraceKind::kBatch, static_cast<uint8_t>(group.op), dtype})) return 0;
  add({static_cast<int64_t>(group.number), traced_as, TraceKind::kMember});
  return batch;
}

void TraceRecorder::note_negotiate(const Submission& submission) {
  const Name* name = submission.name;
  // The recorded request of a name is current if it equals the cached request.
  const bool same = name->cached != nullptr && name->cached->request == submission.request;
  if ((!same || !is_known(submission)) && !define(submission)) return;
  add({now(), name->traced_as, TraceKind::kNegotiate});
}

void TraceRecorder::note_decision(const Submission& submission, bool agreed) {
  // The name may have been announced before the start of the timeline: define it now.
  if (!is_known(submission) && !define(submission)) return;
  Name* name = submission.name;
  add({now(), name->traced_as, agreed ? TraceKind::kAgreed : TraceKind::kRefused});
  if (!agreed) name->traced_in = 0;  // the next request may equal the cached one again
}

uint32_t TraceRecorder::note_batch(int32_t op, int32_t dtype,
                                   std::span<Submission* const> submissions) {
  const uint32_t batch = next_batch_++;
  if (!add({now(), batch, TraceKind::kBatch, static_cast<uint8_t>(op),
            static_cast<uint8_t>(dtype)})) {
    return 0;
  }
  for (const Submission* submission : submissions) {
    if (is_known(*submission)) add({0, submission->name->traced_as, TraceKind::kMember});
  }
  return batch;
}

void TraceRecorder::note_activity(uint32_t batch, const char* name) {
  size_t word = 0;
  if (name != nullptr) {
    const auto found = std::find_if(words_.begin(), words_.end(), [&](const char* known) {
      return known == name || std::strcmp(known, name) == 0;
    });
    word = static_cast<size_t>(found - words_.begin()) + 1;
    if (word > UINT8_MAX) return;
    if (found == words_.end()) {
      const TraceSlot slot{0, 0, TraceKind::kWord, static_cast<uint8_t>(word)};
      if (!add_record(slot, as_bytes(std::string_view(name).substr(0, kLongestTraceName)))) return;
      words_.push_back(name);
    }
  }
  add({now(), batch, TraceKind::kActivity, static_cast<uint8_t>(word)});
}

}  // namespace hvd::runtime
