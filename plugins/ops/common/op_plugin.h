// Makes the C record hvd_op_v1 of an op plugin from a C++ class. Static dispatch: a call costs one C call, and no
// virtual call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/operations/op_traits.h"
#include "base/plugin_record.h"
#include "horovod/plugin_op.h"

namespace hvd::ops {

// A string as a template argument: the prefix of a backend's names in the timeline.
template <size_t size>
struct FixedString {
  consteval FixedString(const char (&text)[size]) {
    std::copy_n(text, size, letters);
  }  // NOLINT: implicit
  char letters[size];
};

// The names by hvd_op_kind: "<prefix>_ALLREDUCE", zero-terminated, in static storage.
template <FixedString prefix>
inline constexpr auto kActivities = [] {
  constexpr size_t kLongest = [] {
    size_t longest = 0;
    for (const OpTraits& traits : kOpTraits) longest = std::max(longest, traits.activity.size());
    return longest;
  }();
  std::array<std::array<char, sizeof prefix.letters + 1 + kLongest>, kOpCount> texts{};
  for (size_t op = 0; op < kOpCount; ++op) {
    char* end = std::copy_n(prefix.letters, sizeof prefix.letters - 1, texts[op].data());
    *end++ = '_';
    kOpTraits[op].activity.copy(end, kLongest);
  }
  return texts;
}();

// activity_of<"MPI">(HVD_ALLREDUCE) is "MPI_ALLREDUCE".
template <FixedString prefix>
const char* activity_of(int32_t op) {
  if (traits_of(op).activity.empty()) return nullptr;
  return kActivities<prefix>[static_cast<size_t>(op)].data();
}

using Done = void (*)(void* argument, int status, const char* error);

// The class Plugin has the members that PluginRecord needs. The class Context has the functions supports, run, poll,
// new_set, drop_set, abort and activity, like Backend. may_sleep and reduce_wholes are optional.
template <typename Plugin, typename Context = Plugin>
struct OpRecord {
  using Record = PluginRecord<Plugin, Context>;
  static Context& self(void* context) { return Record::self(context); }

  static int32_t supports(void* context, const hvd_batch* batch) {
    return self(context).supports(*batch);
  }
  static int run(void* context, const hvd_batch* batch, Done done, void* argument) {
    return self(context).run(*batch, done, argument);
  }
  static int poll(void* context, int32_t* progressed) {
    if (self(context).poll() && progressed != nullptr) *progressed = 1;
    return HVD_OK;
  }
  static int new_set(void* context, int32_t id, const int32_t* members, int32_t count) {
    return self(context).new_set(id, {members, members + count});
  }
  static int drop_set(void* context, int32_t id) { return self(context).drop_set(id); }
  static const char* activity(void* context, const hvd_batch* batch) {
    return self(context).activity(*batch);
  }

  static constexpr decltype(hvd_op_v1::before_sleep) before_sleep() {
    if constexpr (requires { &Context::may_sleep; }) {
      return [](void* context) { return self(context).may_sleep() ? 1 : 0; };
    }
    return nullptr;
  }
  static constexpr decltype(hvd_op_v1::reduce_wholes) reduce_wholes() {
    if constexpr (requires { &Context::reduce_wholes; }) {
      return [](void* context, const hvd_batch* batch, const void* const* inputs) {
        return self(context).reduce_wholes(*batch, inputs);
      };
    }
    return nullptr;
  }

  static constexpr hvd_op_v1 kVtable = {.struct_size = sizeof(hvd_op_v1),
                                        .supports = supports,
                                        .run = run,
                                        .poll = poll,
                                        .new_set = new_set,
                                        .drop_set = drop_set,
                                        .abort = Record::abort,
                                        .activity = activity,
                                        .before_sleep = before_sleep(),
                                        .reduce_wholes = reduce_wholes()};
  static constexpr hvd_plugin kRecord = Record::of(HVD_PLUGIN_OP, &kVtable);
};

}  // namespace hvd::ops
