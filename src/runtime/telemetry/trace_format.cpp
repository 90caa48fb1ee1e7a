#include "runtime/telemetry/trace_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/json_text.h"
#include "base/operations/op_traits.h"
#include "base/text.h"
#include "runtime/submission/group_call_check.h"

namespace hvd::runtime {

void put_number(std::string& text, int64_t number) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

void put_time(std::string& text, double micros) {
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), micros,
                                 std::chars_format::fixed, 3)
                       .ptr;
  text.append(digits.data(), end);
}

std::string upper_case(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return upper;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    if (text.size() > 400) return text + " ...]";
    if (text.size() > 1) text += ", ";
    put_number(text, extent);
  }
  return text + "]";
}

TraceFormat::TraceFormat(int32_t size, int64_t start, int64_t epoch_micros, Sink sink)
    : size_(size), start_(start), sink_(std::move(sink)) {
  metadata("process_name", 0, -1,
           cat("\"name\": \"job\", \"start_time_since_epoch_in_micros\": ", epoch_micros));
  metadata("process_sort_index", 0, -1, "\"sort_index\": 0");
}

void TraceFormat::give() {
  sink_(text_);
  text_.clear();
}

void TraceFormat::metadata(std::string_view name, uint32_t pid, int32_t tid,
                           std::string_view arguments) {
  std::string text = cat("{\"name\": \"", name, "\", \"ph\": \"M\", \"pid\": ", pid);
  if (tid >= 0) text += cat(", \"tid\": ", tid);
  sink_(cat(text, ", \"args\": {", arguments, "}}"));
}

void TraceFormat::head(std::string_view phase, std::string_view name) {
  text_ = "{\"ph\": \"";
  text_ += phase;
  if (!name.empty()) {
    text_ += "\", \"name\": \"";
    text_ += name;
  }
  text_ += "\", \"ts\": ";
  put_time(text_, now_);
}

void TraceFormat::tail(int32_t rank, uint32_t pid) {
  text_ += ", \"pid\": ";
  put_number(text_, pid);
  text_ += ", \"tid\": ";
  put_number(text_, rank);
}

void TraceFormat::name_thread(uint32_t tensor, int32_t thread, std::string_view name) {
  std::vector<bool>& named = tensors_[tensor].named;
  if (named[static_cast<size_t>(thread)]) return;
  named[static_cast<size_t>(thread)] = true;
  metadata("thread_name", tensor + 1, thread, cat("\"name\": \"", name, "\""));
}

void TraceFormat::begin(int32_t rank, uint32_t tensor, std::string_view name) {
  name_thread(tensor, rank, cat("rank ", rank));
  head("B", name);
  tail(rank, tensor + 1);
  text_ += '}';
  give();
  ++ranks_[rank].depth[tensor];
}

void TraceFormat::end(int32_t rank, const Part& part, bool last, int64_t call) {
  auto& depths = ranks_[rank].depth;
  const auto open = depths.find(part.tensor);
  if (open == depths.end()) return;
  if (--open->second == 0) depths.erase(open);
  head("E", {});
  tail(rank, part.tensor + 1);
  if (last) {
    text_ += ", \"args\": {";
    if (!part.shape.empty()) {
      text_ += "\"dtype\": \"";
      text_ += dtype_name(part.dtype);
      text_ += "\", \"shape\": \"";
      text_ += part.shape;
      text_ += '"';
    }
    if (call > 0) {
      text_ += part.shape.empty() ? "\"call\": " : ", \"call\": ";
      put_number(text_, call);
    }
    text_ += '}';
  }
  text_ += '}';
  give();
}

void TraceFormat::end_all(int32_t rank, uint32_t tensor) {
  while (ranks_[rank].depth.contains(tensor)) end(rank, {tensor, 0, {}}, false);
}

void TraceFormat::describe(int32_t number, const TraceBatch& batch) {
  auto [found, fresh] = ranks_.try_emplace(number);
  Rank& rank = found->second;
  rank.dropped = batch.dropped;
  if (fresh) {
    const std::string host = batch.host.empty() ? "" : cat(" on ", json_escaped(batch.host));
    metadata("thread_name", 0, number, cat("\"name\": \"rank ", number, host, "\""));
  }
  if (!fresh && batch.offset == rank.offset && batch.error <= 2 * rank.error) return;
  rank.offset = batch.offset;
  rank.error = batch.error;
  std::string text = cat("\"rank\": ", number, ", \"offset_us\": ");
  put_time(text, static_cast<double>(batch.offset) / 1e3);
  text += ", \"error_us\": ";
  put_time(text, static_cast<double>(batch.error) / 1e3);
  metadata("clock_alignment", 0, number, text);
}

void TraceFormat::add(const TraceBatch& batch) {
  if (batch.rank < 0 || batch.rank >= size_) return;
  describe(batch.rank, batch);
  Rank& rank = ranks_[batch.rank];
  for (size_t i = 0; i < batch.slots.size(); ++i) {
    const TraceSlot& slot = batch.slots[i];
    if (slot.kind != TraceKind::kName && slot.kind != TraceKind::kWord) {
      apply(batch.rank, slot);
      continue;
    }
    const size_t left = batch.slots.size() - i - 1;
    if (slot.time < 0 || static_cast<uint64_t>(slot.time) > left * sizeof(TraceSlot)) return;
    const ByteView bytes(reinterpret_cast<const std::byte*>(batch.slots.data() + i + 1),
                         static_cast<size_t>(slot.time));
    if (slot.kind == TraceKind::kName) {
      define(rank, slot.name, bytes);
    } else {
      if (rank.words.size() <= slot.detail) rank.words.resize(size_t{slot.detail} + 1);
      rank.words[slot.detail] = json_escaped(as_text(bytes).substr(0, kLongestTraceName));
    }
    i += slots_of(bytes.size());
  }
}

// Finds or adds the trace's tensor for tensor `index` of a name. Returns false if the trace has too many tensors.
bool TraceFormat::part_of(const TraceName& name, size_t index, Part* part) {
  std::string text = name.text;
  const size_t count = name.tensors.size();
  if (count > 1) text += cat("_", index + 1, "of", count);
  if (name.process_set > 0) text += cat(" (process set ", name.process_set, ")");
  const bool is_group_call = name.process_set < 0;
  const std::string op = upper_case(is_group_call ? group_op(name.op).name : op_name(name.op));
  const auto [found, fresh] =
      tensor_by_name_.try_emplace(cat(op, "/", text), static_cast<uint32_t>(tensors_.size()));
  if (fresh && tensors_.size() >= kMostTensors) {
    tensor_by_name_.erase(found);
    return false;
  }
  if (fresh) {
    const OpTraits& traits = traits_of(name.op);
    tensors_.push_back(
        {op, traits.is_point_to_point, std::vector<bool>(2 * static_cast<size_t>(size_))});
    const uint32_t pid = found->second + 1;
    metadata("process_name", pid, -1, cat("\"name\": \"", json_escaped(text), "\""));
    metadata("process_sort_index", pid, -1, cat("\"sort_index\": ", pid));
  }
  part->tensor = found->second;
  if (index < count) {
    part->dtype = static_cast<uint8_t>(name.tensors[index].dtype);
    part->shape = shape_text(name.tensors[index].shape);
  }
  return true;
}

void TraceFormat::define(Rank& rank, uint32_t number, ByteView bytes) {
  TraceName name;
  if (!decode(bytes, &name).ok()) return;
  if (rank.names.size() >= kMostTensors) {
    ++rank.lost;
    return;
  }
  std::vector<Part> parts;
  for (size_t i = 0; i < std::max<size_t>(name.tensors.size(), 1); ++i) {
    Part part;
    if (part_of(name, i, &part))
      parts.push_back(std::move(part));
    else
      ++rank.lost;
  }
  rank.names.insert_or_assign(number, std::move(parts));
}

template <typename Use>
void TraceFormat::for_parts(Rank& rank, uint32_t number, Use&& use) {
  const auto found = rank.names.find(number);
  if (found == rank.names.end()) return;
  for (const Part& part : found->second) use(part);
}

// Visits the batch's tensors that have its element type.
template <typename Use>
void TraceFormat::for_members(Rank& rank, const Running& running, Use&& use) {
  for (const uint32_t name : running.names) {
    for_parts(rank, name, [&](const Part& part) {
      if (part.dtype == running.dtype) use(part);
    });
  }
}

// Sets the time of the next events of a rank.
void TraceFormat::set_time(Rank& rank, const TraceSlot& slot) {
  // Computed unsigned, since untrusted numbers may overflow.
  const auto since =
      static_cast<int64_t>(static_cast<uint64_t>(slot.time) + static_cast<uint64_t>(rank.offset) -
                           static_cast<uint64_t>(start_));
  const double micros = static_cast<double>(since) / 1e3;
  // A better estimate of the clock must not change the order of events.
  const bool is_of_device = slot.kind == TraceKind::kBegan || slot.kind == TraceKind::kEnded;
  if (!is_of_device) rank.last_time = std::max(rank.last_time, micros);
  now_ = is_of_device ? std::max(micros, 0.0) : rank.last_time;
}

void TraceFormat::apply(int32_t number, const TraceSlot& slot) {
  Rank& rank = ranks_[number];
  if (slot.kind != TraceKind::kMember) set_time(rank, slot);
  switch (slot.kind) {
    case TraceKind::kNegotiate:
      negotiate(number, slot.name);
      break;
    case TraceKind::kAgreed:
    case TraceKind::kRefused:
      for_parts(rank, slot.name, [&](const Part& part) { end_all(number, part.tensor); });
      break;
    case TraceKind::kBatch:
      if (rank.running.size() >= kMostRunning) rank.running.clear();
      rank.running[slot.name] = {.dtype = slot.dtype};
      rank.last_batch = slot.name;
      break;
    case TraceKind::kMember:
      add_member(number, slot.name, slot.time);
      break;
    case TraceKind::kActivity:
      activity(number, slot.name, slot.detail);
      break;
    case TraceKind::kDone:
      done(number, slot.name);
      break;
    case TraceKind::kCycle:
      cycle(number);
      break;
    case TraceKind::kOnStream:
      leave(number, slot.name);
      break;
    case TraceKind::kBegan:
    case TraceKind::kEnded:
      ran(number, slot.name, slot.kind == TraceKind::kEnded);
      break;
    default:
      break;
  }
}

void TraceFormat::negotiate(int32_t number, uint32_t name) {
  for_parts(ranks_[number], name, [&](const Part& part) {
    end_all(number, part.tensor);  // ends an earlier event whose end was lost
    const Tensor& tensor = tensors_[part.tensor];
    begin(number, part.tensor, cat(tensor.is_message ? "WAIT_" : "NEGOTIATE_", tensor.op));
    head("X", cat(number));
    text_ += ", \"dur\": 0";
    tail(number, part.tensor + 1);
    text_ += '}';
    give();
  });
}

void TraceFormat::add_member(int32_t number, uint32_t name, int64_t call) {
  Rank& rank = ranks_[number];
  const auto batch = rank.running.find(rank.last_batch);
  if (batch == rank.running.end()) return;
  batch->second.names.push_back(name);
  batch->second.call = call;
  for_parts(rank, name, [&](const Part& part) {
    if (part.dtype != batch->second.dtype) return;
    end_all(number, part.tensor);
    begin(number, part.tensor, tensors_[part.tensor].op);
  });
}

void TraceFormat::activity(int32_t number, uint32_t batch, uint8_t word) {
  Rank& rank = ranks_[number];
  const auto found = rank.running.find(batch);
  if (found == rank.running.end()) return;
  Running& running = found->second;
  const bool known = word != 0 && word < rank.words.size();
  for_members(rank, running, [&](const Part& part) {
    if (running.active) end(number, part, false);
    if (known) begin(number, part.tensor, rank.words[word]);
  });
  running.active = known;
  running.word = known ? word : uint8_t{0};
}

// Ends the events of a batch on this rank.
void TraceFormat::leave(int32_t number, uint32_t batch) {
  Rank& rank = ranks_[number];
  const auto found = rank.running.find(batch);
  if (found == rank.running.end() || std::exchange(found->second.has_left, true)) return;
  for_members(rank, found->second, [&](const Part& part) {
    if (found->second.active) end(number, part, false);
    end(number, part, true, found->second.call);
  });
}

// Adds the event of a batch on a device, in a separate thread of the trace: the rank's thread may already have events
// of the tensors' next batch.
void TraceFormat::ran(int32_t number, uint32_t batch, bool has_ended) {
  Rank& rank = ranks_[number];
  const auto found = rank.running.find(batch);
  if (found == rank.running.end()) return;
  Running& running = found->second;
  if (!has_ended) running.began = now_;
  if (!has_ended || running.began < 0) return;
  const double took = std::max(now_ - running.began, 0.0);
  now_ = running.began;
  for_members(rank, running, [&](const Part& part) {
    const std::string& op = tensors_[part.tensor].op;
    name_thread(part.tensor, size_ + number, cat("rank ", number, ", device"));
    head("X", running.word == 0 ? op : rank.words[running.word]);
    text_ += ", \"dur\": ";
    put_time(text_, took);
    tail(size_ + number, part.tensor + 1);
    text_ += '}';
    give();
  });
}

void TraceFormat::done(int32_t number, uint32_t batch) {
  leave(number, batch);
  ranks_[number].running.erase(batch);
}

// Marks a cycle. Marks of the root are global in the trace, as in traces of the original Horovod.
void TraceFormat::cycle(int32_t number) {
  head("i", "CYCLE_START");
  tail(number, 0);
  text_ += number == 0 ? ", \"s\": \"g\"}" : ", \"s\": \"t\"}";
  give();
}

void TraceFormat::finish() {
  for (auto& [number, rank] : ranks_) {
    now_ = rank.last_time;
    while (!rank.depth.empty()) end_all(number, rank.depth.begin()->first);
    rank.running.clear();
    const uint64_t lost = rank.dropped + rank.lost;
    if (lost == 0) continue;
    metadata("dropped_events", 0, number, cat("\"rank\": ", number, ", \"count\": ", lost));
  }
}

}  // namespace hvd::runtime
