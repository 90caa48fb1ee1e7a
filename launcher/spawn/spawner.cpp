#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

std::string_view to_string(SpawnStage stage) {
  switch (stage) {
    case SpawnStage::kConfigure:
      return "configure";
    case SpawnStage::kResolve:
      return "resolve";
    case SpawnStage::kConnect:
      return "connect";
    case SpawnStage::kRetry:
      return "connect again";
    case SpawnStage::kAuthenticate:
      return "authenticate";
    case SpawnStage::kSendAgent:
      return "send agent";
    case SpawnStage::kStartAgent:
      return "start agent";
    case SpawnStage::kReady:
      return "ready";
  }
  return "?";
}

}  // namespace hvd::launcher
