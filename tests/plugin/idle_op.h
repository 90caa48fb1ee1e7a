#pragma once

#include "horovod/plugin_op.h"

// A complete table of operations that do nothing.
inline constexpr hvd_op_v1 kIdleOp{
    sizeof(hvd_op_v1),
    [](void*, const hvd_batch*) { return int32_t{0}; },
    [](void*, const hvd_batch*, void (*)(void*, int, const char*), void*) { return 0; },
    [](void*, int32_t*) { return 0; },
    [](void*, int32_t, const int32_t*, int32_t) { return 0; },
    [](void*, int32_t) { return 0; },
    [](void*, const char*) {},
    nullptr,
    nullptr,
    nullptr};
