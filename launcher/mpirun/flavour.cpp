#include "launcher/mpirun/flavour.h"

namespace hvd::launcher {

std::optional<MpiFlavour> flavour_of(std::string_view version_output) {
  const auto says = [&](std::string_view words) {
    return version_output.find(words) != std::string_view::npos;
  };
  if (says("Open MPI") || says("OpenRTE")) return MpiFlavour::kOpenMpi;
  if (says("IBM Spectrum MPI")) return MpiFlavour::kSpectrum;
  if (says("MPICH") || says("HYDRA")) return MpiFlavour::kMpich;
  if (says("Intel(R) MPI")) return MpiFlavour::kIntel;
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
