#include "runtime/plugins/paired_controller.h"

#include <cstddef>

#include "base/plugin_record.h"
#include "horovod/plugin_controller.h"

namespace hvd::runtime {
namespace {

using OnMessage = void (*)(void* argument, int32_t rank, const void* message, size_t size);

// Closes the message links first, since the data links were opened before.
struct ControllerPair {
  OpenedPlugin data;
  OpenedPlugin messages;
};

ControllerPair& pair_of(void* context) { return *static_cast<ControllerPair*>(context); }
const hvd_controller_v1& links_of(const OpenedPlugin& plugin) {
  return plugin.vtable<hvd_controller_v1>();
}

int send_message(void* context, int32_t rank, const void* message, size_t size) {
  const OpenedPlugin& by = pair_of(context).messages;
  return links_of(by).send(by.context(), rank, message, size);
}

int poll_both(void* context, OnMessage on_message, void* argument, int32_t* progressed, char* error,
              size_t error_size) {
  const ControllerPair& pair = pair_of(context);
  const int code =
      links_of(pair.messages)
          .poll(pair.messages.context(), on_message, argument, progressed, error, error_size);
  if (code != HVD_OK) return code;
  const OnMessage nobody = [](void*, int32_t, const void*, size_t) {};
  return links_of(pair.data).poll(pair.data.context(), nobody, nullptr, progressed, error,
                                  error_size);
}

void abort_both(void* context, const char* cause, int32_t lost_rank) {
  const ControllerPair& pair = pair_of(context);
  const Status status = aborted(cause).with_lost_rank(lost_rank);
  abort_links(pair.messages, status);
  abort_links(pair.data, status);
}

const int32_t* hosts_of_data(void* context) {
  const OpenedPlugin& by = pair_of(context).data;
  return links_of(by).hosts(by.context());
}

int both_may_sleep(void* context) {
  const ControllerPair& pair = pair_of(context);
  if (links_of(pair.messages).before_sleep(pair.messages.context()) != 1) return 0;
  if (links_of(pair.data).before_sleep(pair.data.context()) == 1) return 1;
  links_of(pair.messages).after_sleep(pair.messages.context());
  return 0;
}

void both_wake(void* context) {
  const ControllerPair& pair = pair_of(context);
  links_of(pair.messages).after_sleep(pair.messages.context());
  links_of(pair.data).after_sleep(pair.data.context());
}

int32_t rank_lost_by_either(void* context) {
  const ControllerPair& pair = pair_of(context);
  const int32_t rank = lost_rank_of(pair.messages);
  return rank >= 0 ? rank : lost_rank_of(pair.data);
}

void close_both(void* context) { delete &pair_of(context); }

constexpr hvd_controller_v1 kPairVtable = {
    .struct_size = sizeof(hvd_controller_v1),
    .send = send_message,
    .poll = poll_both,
    .abort = [](void* context, const char* cause) { abort_both(context, cause, -1); },
    .hosts = hosts_of_data,
    .before_sleep = both_may_sleep,
    .after_sleep = both_wake,
    .send_parts = nullptr,
    .lost_rank = rank_lost_by_either,
    .abort_lost = abort_both};
// The record of a pair, which no setting can name.
constexpr hvd_plugin kPairRecord = {.struct_size = sizeof(hvd_plugin),
                                    .abi = HVD_PLUGIN_ABI,
                                    .kind = HVD_PLUGIN_CONTROLLER,
                                    .name = "pair",
                                    .priority = 0,
                                    .threads = HVD_THREADS_ONE,
                                    .reserved = 0,
                                    .probe = nullptr,
                                    .open = nullptr,
                                    .close = close_both,
                                    .vtable = &kPairVtable};

}  // namespace

int32_t lost_rank_of(const OpenedPlugin& controller) {
  auto* const lost_rank = field_of(links_of(controller), &hvd_controller_v1::lost_rank);
  return lost_rank == nullptr ? -1 : lost_rank(controller.context());
}

void abort_links(const OpenedPlugin& controller, const Status& cause) {
  const hvd_controller_v1& links = links_of(controller);
  auto* const abort_lost = field_of(links, &hvd_controller_v1::abort_lost);
  if (cause.lost_rank() >= 0 && abort_lost != nullptr) {
    abort_lost(controller.context(), cause.message().c_str(), cause.lost_rank());
  } else {
    links.abort(controller.context(), cause.message().c_str());
  }
}

OpenedPlugin pair_controllers(OpenedPlugin messages, OpenedPlugin data) {
  return OpenedPlugin::made(&kPairRecord, new ControllerPair{std::move(data), std::move(messages)});
}

}  // namespace hvd::runtime
