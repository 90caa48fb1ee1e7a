// Before any rank opens an engine, all tell each other which they have chosen: those of different
// engines would wait for each other in vain.
#pragma once

#include <string>

#include "runtime/bootstrap/identity.h"
#include "runtime/plugins/plugin_host.h"

namespace hvd::runtime {

// own: what this rank has chosen, in words, or what keeps it from that. Not ok, on every rank, where
// ranks differ or one of them has trouble: the sentence says which.
Status agree_on_engines(const PluginHost& host, const Identity& identity,
                        const Result<std::string>& own, Deadline deadline);

}  // namespace hvd::runtime
