// Opens a plugin's shared object, calls its entry, and checks its record. The catalogue calls these
// functions.
#pragma once

#include <string>

#include "base/result.h"
#include "base/status.h"
#include "horovod/plugin.h"

namespace hvd::plugin {

// Returns the record, which is valid for the rest of the process. An error names the file.
Result<const hvd_plugin*> load(const std::string& path);

// Returns ok if the plugin works here, else the plugin's own reason.
Status probe(const hvd_plugin& record);

// Checks that this build supports the record.
Status check_record(const hvd_plugin* record);

// Tests a plugin of a third party in a child process with a time limit: opens it, checks its record
// and calls its probe. The catalogue calls try_in_child().

// Returns an error that names the file if its record is refused, if its probe fails, or if it crashes or hangs.
Status try_in_child(const std::string& path, double limit_seconds);

}  // namespace hvd::plugin
