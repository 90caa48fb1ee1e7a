// Makes the C record of a controller plugin from a C++ class. Static dispatch: a message costs one C call, and no
// virtual call.
#pragma once

#include "base/bytes.h"
#include "base/plugin_record.h"
#include "horovod/plugin_controller.h"

namespace hvd::controllers {

// The class Controller is both Plugin and Context of PluginRecord. send(rank, message) and poll(on_message, progressed)
// return a Status; before_sleep() returns whether the thread may sleep; lost_rank() returns the rank whose loss made
// poll fail, or -1. Controller also has abort(cause), hosts() and after_sleep(), and may have send_parts(rank, first,
// second).
template <typename Controller>
struct ControllerRecord {
  using Record = PluginRecord<Controller, Controller>;
  using OnMessage = void (*)(void* argument, int32_t rank, const void* message, size_t size);
  static Controller& self(void* context) { return Record::self(context); }
  static ByteView view(const void* bytes, size_t size) {
    return {static_cast<const std::byte*>(bytes), size};
  }

  static int send(void* context, int32_t rank, const void* message, size_t size) {
    return static_cast<int>(self(context).send(rank, view(message, size)).code());
  }
  static int poll(void* context, OnMessage on_message, void* argument, int32_t* progressed,
                  char* error, size_t error_size) {
    return c_call(error, error_size, [&] {
      bool moved = false;
      const auto hand_over = [on_message, argument](int32_t from, ByteView message) {
        on_message(argument, from, message.data(), message.size());
      };
      Status status = self(context).poll(hand_over, moved);
      if (moved && progressed != nullptr) *progressed = 1;
      return status;
    });
  }
  static const int32_t* hosts(void* context) { return self(context).hosts().data(); }
  static int before_sleep(void* context) { return self(context).before_sleep() ? 1 : 0; }
  static void after_sleep(void* context) { self(context).after_sleep(); }
  static int32_t lost_rank(void* context) { return self(context).lost_rank(); }
  static void abort_lost(void* context, const char* cause, int32_t rank) {
    self(context).abort(aborted(cause == nullptr ? "" : cause).with_lost_rank(rank));
  }

  static constexpr decltype(hvd_controller_v1::send_parts) send_parts() {
    if constexpr (requires { &Controller::send_parts; }) {
      return [](void* context, int32_t rank, const void* first, size_t first_size,
                const void* second, size_t second_size) {
        const Status sent =
            self(context).send_parts(rank, view(first, first_size), view(second, second_size));
        return static_cast<int>(sent.code());
      };
    }
    return nullptr;
  }

  static constexpr hvd_controller_v1 kVtable = {.struct_size = sizeof(hvd_controller_v1),
                                                .send = send,
                                                .poll = poll,
                                                .abort = Record::abort,
                                                .hosts = hosts,
                                                .before_sleep = before_sleep,
                                                .after_sleep = after_sleep,
                                                .send_parts = send_parts(),
                                                .lost_rank = lost_rank,
                                                .abort_lost = abort_lost};
  static constexpr hvd_plugin kRecord = Record::of(HVD_PLUGIN_CONTROLLER, &kVtable);
};

}  // namespace hvd::controllers
