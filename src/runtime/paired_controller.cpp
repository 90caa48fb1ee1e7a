#include "runtime/paired_controller.h"

#include "horovod/plugin_controller.h"

namespace hvd::runtime {
namespace {

using OnMessage = void (*)(void* argument, int32_t rank, const void* message, size_t size);

// The messages' links are closed first: the data's were opened before.
struct Pair {
  OpenedPlugin data;
  OpenedPlugin messages;
};

Pair& self(void* context) { return *static_cast<Pair*>(context); }
const hvd_controller_v1& link(const OpenedPlugin& plugin) {
  return plugin.vtable<hvd_controller_v1>();
}

int send(void* context, int32_t rank, const void* message, size_t size) {
  const OpenedPlugin& by = self(context).messages;
  return link(by).send(by.context(), rank, message, size);
}

int poll(void* context, OnMessage on_message, void* argument, int32_t* progressed, char* error,
         size_t error_size) {
  const Pair& pair = self(context);
  const int code = link(pair.messages).poll(pair.messages.context(), on_message, argument,
                                            progressed, error, error_size);
  if (code != HVD_OK) return code;
  const OnMessage nobody = [](void*, int32_t, const void*, size_t) {};
  return link(pair.data).poll(pair.data.context(), nobody, nullptr, progressed, error, error_size);
}

void abort_both(void* context, const char* cause) {
  const Pair& pair = self(context);
  link(pair.messages).abort(pair.messages.context(), cause);
  link(pair.data).abort(pair.data.context(), cause);
}

const int32_t* hosts(void* context) {
  const OpenedPlugin& by = self(context).data;
  return link(by).hosts(by.context());
}

int before_sleep(void* context) {
  const Pair& pair = self(context);
  if (link(pair.messages).before_sleep(pair.messages.context()) != 1) return 0;
  if (link(pair.data).before_sleep(pair.data.context()) == 1) return 1;
  link(pair.messages).after_sleep(pair.messages.context());
  return 0;
}

void after_sleep(void* context) {
  const Pair& pair = self(context);
  link(pair.messages).after_sleep(pair.messages.context());
  link(pair.data).after_sleep(pair.data.context());
}

void close(void* context) { delete &self(context); }

constexpr hvd_controller_v1 kVtable = {.struct_size = sizeof(hvd_controller_v1),
                                       .send = send,
                                       .poll = poll,
                                       .abort = abort_both,
                                       .hosts = hosts,
                                       .before_sleep = before_sleep,
                                       .after_sleep = after_sleep};
// Never opened by name.
constexpr hvd_plugin kRecord = {.struct_size = sizeof(hvd_plugin),
                                .abi = HVD_PLUGIN_ABI,
                                .kind = HVD_PLUGIN_CONTROLLER,
                                .name = "pair",
                                .priority = 0,
                                .threads = HVD_THREADS_ONE,
                                .run_blocks = 0,
                                .probe = nullptr,
                                .open = nullptr,
                                .close = close,
                                .vtable = &kVtable};

}  // namespace

OpenedPlugin pair_controllers(OpenedPlugin messages, OpenedPlugin data) {
  return OpenedPlugin::made(&kRecord, new Pair{std::move(data), std::move(messages)});
}

}  // namespace hvd::runtime
