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

// The verdict on a name that every rank has announced, by the first check that fails: terms, whether
// all ranks are there, whether there are rows, then what depends on those. `joined`: who did not
// announce it, as "rank 3"; empty: nobody.
Status verdict(const Proposal& proposal, std::string_view joined = {});

}  // namespace hvd::runtime
