// Detects the MPI implementation of an mpirun. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace hvd::launcher {

enum class MpiFlavour { kOpenMpi, kSpectrum, kMpich, kIntel };

// By the output of `mpirun --version`; nothing for one that is not known.
std::optional<MpiFlavour> flavour_of(std::string_view version_output);

// "Open MPI".
const char* name_of(MpiFlavour flavour);

}  // namespace hvd::launcher
