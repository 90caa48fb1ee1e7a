// Checks that the requests of all ranks for one name are equal, and makes the error sentence when they
// differ. Coordinator and negotiator call it. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

// Adds what another part of the tree asks for. If requests differ, those of the lowest ranks are
// kept, since a sentence names two.
void merge(Proposal* into, Proposal&& other);

// Nothing when the two may run together. Rows and splits are each rank's own affair.
std::optional<std::string> disagreement(const std::string& name, const Variant& a,
                                        const Variant& b);

// Checks a name that every rank has announced. Returns the error of the first check that fails: equal
// parameters, no joined rank, at least one dimension, then checks that depend on these. `joined`: the
// ranks that have joined instead of announcing it, as "rank 3"; empty: none.
Status verdict(const Proposal& proposal, std::string_view joined = {});

}  // namespace hvd::runtime
