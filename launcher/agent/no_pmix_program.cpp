#include "launcher/agent/pmix_helper.h"

namespace hvd::launcher {

std::string_view pmix_program() { return {}; }

}  // namespace hvd::launcher
