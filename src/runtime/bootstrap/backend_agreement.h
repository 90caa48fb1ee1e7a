// Backend agreement: before any rank opens a backend, all compare which they have selected. Ranks of
// different backends would wait for each other forever.
#pragma once

#include <string>

#include "runtime/bootstrap/identity.h"
#include "runtime/plugins/plugin_host.h"

namespace hvd::runtime {

// own: what this rank has chosen, in words, or what keeps it from that. Not ok, on every rank, where
// ranks differ or one of them has trouble: the sentence says which.
Status agree_on_backends(const PluginHost& host, const Identity& identity,
                         const Result<std::string>& own, Deadline deadline);

}  // namespace hvd::runtime
