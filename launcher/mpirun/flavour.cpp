#include "launcher/mpirun/flavour.h"

namespace hvd::launcher {

std::optional<MpiFlavour> flavour_of(std::string_view version_output) {
  const auto contains = [&](std::string_view words) {
    return version_output.find(words) != std::string_view::npos;
  };
  if (contains("Open MPI") || contains("OpenRTE")) return MpiFlavour::kOpenMpi;
  if (contains("IBM Spectrum MPI")) return MpiFlavour::kSpectrum;
  if (contains("MPICH") || contains("HYDRA")) return MpiFlavour::kMpich;
  if (contains("Intel(R) MPI")) return MpiFlavour::kIntel;
  return {};
}

const char* name_of(MpiFlavour flavour) {
  switch (flavour) {
    case MpiFlavour::kOpenMpi:
      return "Open MPI";
    case MpiFlavour::kSpectrum:
      return "Spectrum MPI";
    case MpiFlavour::kMpich:
      return "MPICH";
    case MpiFlavour::kIntel:
      return "Intel MPI";
  }
  return "";
}

}  // namespace hvd::launcher
